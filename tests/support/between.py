"""Between hosts and the control plane: what hosts say is lost, or comes twice, as on a bad network.

The agents' own link is used, and what it carries is dropped or repeated; the connections are real.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol

import msgspec
import pytest

from moorage.agent.errors import LinkDown
from moorage.agent.link import Link
from moorage.wire.messages import Command, CommandError, Result, Uplink


class Replies(Protocol):
    """What is done to the answer of a host.

    ``None``: it passes. ``lost``: it is not passed on, and the host knows. ``unacknowledged``: it is passed on, and the
    host hears nothing of that. ``twice``: it is passed on twice. ``never``: the host is told that it arrived, and it did
    not. ``failed``: it says that the host, which did it, failed.
    """

    def reply(self, operation: str, step: str) -> str | None:
        """Asked once for each answer."""
        ...


def _failed(result: Result) -> Result:
    error = CommandError(code="injected", message="injected: the host failed")
    return msgspec.structs.replace(result, outcome="failed", data={}, error=error)


class Between:
    """``repeat_commands``: hosts are given every command a second time; ``repeated``: (operation, step, kind) of each."""

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.repeat_commands = False
        self.repeated: set[tuple[str, str, str]] = set()
        self._again: dict[Link, list[Command]] = {}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """All links of this process go through here."""
        send, poll = Link.send, Link.poll

        async def sent(link: Link, uplink: Uplink) -> None:
            fates = {r.command_id: self.replies.reply(r.operation, r.step) for r in uplink.results}
            wanted = set(fates.values())
            if "lost" in wanted:
                raise LinkDown("injected: the request is lost")
            kept = [
                _failed(r) if fates[r.command_id] == "failed" else r
                for r in uplink.results
                if fates[r.command_id] != "never"
            ]
            passed = msgspec.structs.replace(uplink, results=kept)
            await send(link, passed)
            if "twice" in wanted:
                await send(link, passed)
            if "unacknowledged" in wanted:
                raise LinkDown("injected: the answer is lost")

        async def polled(link: Link, *, after: int, wait: int) -> list[Command]:
            if again := self._again.pop(link, None):
                self.repeated |= {(c.operation, c.step, c.kind) for c in again}
                return again
            found = await poll(link, after=after, wait=wait)
            if self.repeat_commands and found:
                self._again[link] = found
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Link, "send", sent)
            patch.setattr(Link, "poll", polled)
            yield

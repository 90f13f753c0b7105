"""Coming back: what this host may still run, asked before anything else.

A host that starts, or that was cut off, has guests whose servers may have been deleted or brought up elsewhere
meanwhile. It names its guests and is given a verdict on each; until then no command is taken, and what was taken and
not begun is dropped, for it comes again. Then

========  =============================================================================================
keep      ports are plugged again where this process has not seen the guest before
destroy   the guest is ended and all that belongs to it removed, after what is being done to it now
unknown   nothing is touched, not even ports: the operator sees it in `moorage host show` and the audit
========  =============================================================================================

What is unknown, and what could not be destroyed, is asked about again after a while.
"""

import time

from moorage.agent.guests import Guests
from moorage.agent.link import Link
from moorage.agent.loop import CommandLoop
from moorage.agent.outbox import Outbox
from moorage.core.log import get_logger
from moorage.wire.messages import Verdict

log = get_logger(__name__)


class Returning:
    """``again``: seconds until what is not settled is asked about again."""

    def __init__(self, guests: Guests, loop: CommandLoop, outbox: Outbox, again: float = 60.0) -> None:
        self._guests = guests
        self._loop = loop
        self._outbox = outbox
        self._again = again
        self._sure = False
        self._ask_at: float | None = None
        # Guests that an earlier process of ours left: their ports may be gone, as after a start of the machine.
        self._found: set[str] | None = None

    def cut_off(self) -> None:
        """The control plane did not answer: what it thinks of our guests is not known any more."""
        self._sure = False
        self._loop.drop_waiting()

    async def settle(self, link: Link) -> None:
        """Return once every guest has its verdict; at once where all of them have. Raises as ``Link.judge``."""
        due = self._ask_at is not None and time.monotonic() >= self._ask_at
        if self._sure and not due:
            return
        here = [state.server_id for state in await self._guests.hypervisor.guests()]
        if self._found is None:
            self._found = set(here)
        verdicts = await link.judge(here) if here else {}
        self._ask_at = None
        for server_id in here:
            await self._obey(server_id, verdicts.get(server_id, "unknown"))
        self._sure = True

    async def _obey(self, server_id: str, verdict: Verdict) -> None:
        if verdict == "keep":
            if self._found and server_id in self._found:
                self._found.discard(server_id)
                self._outbox.put(events=await self._guests.recover(server_id))
        elif verdict == "destroy":
            log.warning("guest.stale", server=server_id)
            self._loop.destroy(server_id, self._ask_again)
        else:
            log.warning("guest.unknown", server=server_id)
            self._ask_again()

    def _ask_again(self) -> None:
        self._ask_at = time.monotonic() + self._again

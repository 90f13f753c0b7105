"""Which guests a host may have: the server's row decides.

======================================  ===========  ========================================================
the server                              verdict
======================================  ===========  ========================================================
is on this host                         keep
is on another host                      destroy      it was brought up there while this host was cut off
was deleted                             destroy      the command to do so is on its way, or was given up
is on no host, or something is being    unknown      what is under way tells the host itself
done to it that is not about this host
was never heard of                      unknown      not ours to destroy: an operator looks at it
======================================  ===========  ========================================================
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
import sqlalchemy as sa

from moorage.compute.operations.lifecycle import subject
from moorage.compute.tables import servers
from moorage.operations.model import READY, RUNNING, STUCK, WAITING
from moorage.operations.tables import operations
from moorage.store.database import Tx
from moorage.store.statement import Statement, texts_param
from moorage.wire.messages import Verdict


class Whereabouts(msgspec.Struct, frozen=True):
    """Where a server is."""

    id: str
    host: str | None
    deleted_at: datetime | None


_WHEREABOUTS = Statement(
    sa.select(*(servers.c[name] for name in Whereabouts.__struct_fields__)).where(
        servers.c.id == sa.any_(texts_param("ids"))
    ),
    row=Whereabouts,
)
_BUSY: Statement[tuple[str]] = Statement(
    sa.select(operations.c.subject).where(
        operations.c.subject == sa.any_(texts_param("subjects")),
        operations.c.state.in_((READY, RUNNING, WAITING, STUCK)),
    )
)


async def verdicts(tx: Tx, host: str, server_ids: Sequence[str]) -> dict[str, Verdict]:
    """May ``host`` have these guests? A verdict for each."""
    # In this order: an operation that ends in between has moved the row before the row is read.
    busy = {row[0] for row in await _BUSY.all(tx, subjects=[subject(s) for s in server_ids])}
    known = {row.id: row for row in await _WHEREABOUTS.all(tx, ids=list(server_ids))}
    return {
        server_id: judge(known.get(server_id), host, busy=subject(server_id) in busy)
        for server_id in server_ids
    }


def judge(server: Whereabouts | None, host: str, *, busy: bool) -> Verdict:
    """The table of the module's text. ``busy``: an operation on the server is open."""
    if server is None:
        return "unknown"
    if server.deleted_at is None and server.host == host:
        return "keep"
    if busy:
        return "unknown"
    gone = server.deleted_at is not None or server.host is not None
    return "destroy" if gone else "unknown"

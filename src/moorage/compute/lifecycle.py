"""What compute's API asks of the operations: the long work on servers."""

from typing import Protocol

from moorage.api.context import RequestContext
from moorage.compute.model import Server
from moorage.store.database import Tx


class Lifecycle(Protocol):
    """Submits operations in the transaction that changed the server's row.

    The caller has set the task state already (``compute.server_state.begin_task``) and recorded the action
    (``compute.actions.start``); ``context`` gives the request id that events belong to.
    """

    async def submit_boot(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Place the server and start its guest."""
        ...

    async def submit_delete(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """End the guest and give back what the server held; ends with ``server_state.deleted``."""
        ...

    async def submit_start(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Power on; ends with ``server_state.running``."""
        ...

    async def submit_stop(self, tx: Tx, server: Server, *, context: RequestContext) -> None:
        """Power off; ends with ``server_state.stopped``."""
        ...

    async def submit_reboot(self, tx: Tx, server: Server, *, hard: bool, context: RequestContext) -> None:
        """Restart the guest, asking it first unless ``hard``; ends with ``server_state.running``."""
        ...

    async def console_output(self, server: Server, *, length: int | None) -> str:
        """The last ``length`` lines of the serial console (all: None). Outside of any transaction.

        Raises Unavailable or Conflict when the host does not answer.
        """
        ...

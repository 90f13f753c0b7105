"""What a handler gets and gives: one request, decoded; one reply, not yet encoded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from moorage.api.context import RequestContext
from moorage.api.versions import Version

if TYPE_CHECKING:
    from moorage.api.policy import Policies

A = TypeVar("A")


class Reply(msgspec.Struct, frozen=True):
    """An answer with its own status or headers. ``body``: bytes as they are, anything else as JSON."""

    body: Any = None
    status: int | None = None
    headers: dict[str, str] = {}


class Call(Generic[A]):
    """One request on its way through a handler. ``app`` is the service object given to the Api."""

    __slots__ = (
        "app",
        "base_url",
        "body",
        "context",
        "headers",
        "path",
        "policies",
        "query",
        "raw_path",
        "version",
    )

    def __init__(
        self,
        *,
        app: A,
        context: RequestContext,
        path: dict[str, str],
        headers: Mapping[str, str],
        version: Version,
        base_url: str,
        raw_path: str,
        policies: "Policies",
    ) -> None:
        self.app = app
        self.context = context
        self.path = path
        self.headers = headers
        self.version = version
        self.base_url = base_url
        self.raw_path = raw_path
        self.policies = policies
        self.query: Any = None
        self.body: Any = None

    def url(self, path: str = "") -> str:
        """An absolute URL of this API; ``path`` begins with a slash."""
        return self.base_url + path

    async def authorize(self, rule: str, target: Mapping[str, Any] | None = None) -> None:
        """Check a policy rule; raises Forbidden. The target defaults to the caller's own project."""
        self.policies.check(rule, self.context, target)

    def allowed(self, rule: str, target: Mapping[str, Any] | None = None) -> bool:
        """Whether the rule holds."""
        return self.policies.allows(rule, self.context, target)

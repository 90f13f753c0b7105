"""Who asks: the frozen facts of a request's credential."""

import msgspec


class RequestContext(msgspec.Struct, frozen=True):
    """The caller as the token says. ``roles`` are lower-case names; a credential without project has None.

    ``host`` and ``certificate`` (its fingerprint) are set for hosts alone.
    """

    request_id: str
    user_id: str | None = None
    project_id: str | None = None
    roles: frozenset[str] = frozenset()
    system_scope: bool = False
    user_name: str | None = None
    project_name: str | None = None
    user_domain_id: str | None = None
    project_domain_id: str | None = None
    token: str | None = None
    host: str | None = None
    certificate: bytes | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the caller may act on every project's things."""
        return "admin" in self.roles

    @property
    def is_service(self) -> bool:
        """Whether the caller is another service of the cloud."""
        return "service" in self.roles

    def credentials(self) -> dict[str, object]:
        """The form that oslo.policy's rules read."""
        return {
            "user_id": self.user_id,
            "project_id": self.project_id,
            "tenant_id": self.project_id,
            "roles": sorted(self.roles),
            "is_admin": self.is_admin,
            "system_scope": "all" if self.system_scope else None,
            "system": "all" if self.system_scope else None,
            "user_domain_id": self.user_domain_id,
            "project_domain_id": self.project_domain_id,
        }

"""Policy: oslo.policy with the names and file format that operators have."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_policy import policy

from moorage.api.context import RequestContext
from moorage.core.errors import Forbidden

# The three personas of upstream's secure defaults; an admin may everything.
COMMON: dict[str, str] = {
    "admin_api": "role:admin",
    "context_is_admin": "role:admin",
    "project_reader": "role:admin or (role:reader and project_id:%(project_id)s)",
    "project_member": "role:admin or (role:member and project_id:%(project_id)s)",
    "project_manager": "role:admin or (role:manager and project_id:%(project_id)s)",
    "service_api": "role:service",
    "owner": "role:admin or project_id:%(project_id)s",
    "anyone": "@",
}


class Policies:
    """One API's rules: defaults, over which the operator's file wins.

    ``path`` is a YAML file of ``"rule": "check"``; a rule it does not name keeps its default.

    Tokens are scoped to a project: those of the system, of a domain or of nothing are let in nowhere, whatever their
    roles, as upstream's scope types have it. With ``system`` those of the system are.
    """

    def __init__(self, defaults: Mapping[str, str], path: str | None = None, *, system: bool = False) -> None:
        conf = cfg.ConfigOpts()
        conf([], project="moorage", default_config_files=[])
        rules = {**COMMON, **defaults}
        if path is not None:
            rules.update(policy.parse_file_contents(Path(path).read_text()))
        self._enforcer = policy.Enforcer(conf, use_conf=False)
        self._enforcer.set_rules(policy.Rules.from_dict(rules), overwrite=True, use_conf=False)
        self.names = frozenset(defaults)
        self._system = system
        # oslo.policy takes 0.3 ms a check. Against the caller's own project the answer depends on the
        # credential alone, so it is remembered by credential.
        self._own = lru_cache(maxsize=10_000)(self._allows_own)

    def allows(self, rule: str, context: RequestContext, target: Mapping[str, Any] | None = None) -> bool:
        """Whether ``rule`` lets the caller act on ``target``."""
        if not self._in_scope(context):
            return False
        if target is None:
            return self._own(rule, msgspec.structs.replace(context, request_id="", token=None))
        return bool(self._enforcer.enforce(rule, dict(target), context.credentials()))

    def _in_scope(self, context: RequestContext) -> bool:
        if context.project_id is not None or context.host is not None:
            return True
        return self._system and context.system_scope

    def _allows_own(self, rule: str, context: RequestContext) -> bool:
        target = {
            "project_id": context.project_id,
            "tenant_id": context.project_id,
            "user_id": context.user_id,
        }
        return bool(self._enforcer.enforce(rule, target, context.credentials()))

    def check(self, rule: str, context: RequestContext, target: Mapping[str, Any] | None = None) -> None:
        """Raise Forbidden where ``rule`` does not let the caller act on ``target``."""
        if not self.allows(rule, context, target):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.", rule=rule)

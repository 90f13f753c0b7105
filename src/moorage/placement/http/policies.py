"""Rules of the Placement API, by upstream's names."""

from __future__ import annotations

_READ = _WRITE = "rule:admin_api or rule:service_api"

DEFAULTS: dict[str, str] = {
    **{
        f"placement:resource_providers:{verb}": _WRITE
        for verb in ("list", "create", "show", "update", "delete")
    },
    **{
        f"placement:resource_classes:{verb}": _WRITE
        for verb in ("list", "create", "show", "update", "delete")
    },
    **{
        f"placement:resource_providers:inventories:{verb}": _WRITE
        for verb in ("list", "create", "show", "update", "delete")
    },
    **{f"placement:resource_providers:aggregates:{verb}": _WRITE for verb in ("list", "update")},
    "placement:resource_providers:usages": _READ,
    "placement:resource_providers:allocations:list": _READ,
    **{f"placement:resource_providers:traits:{verb}": _WRITE for verb in ("list", "update", "delete")},
    **{f"placement:traits:{verb}": _WRITE for verb in ("list", "show", "update", "delete")},
    **{f"placement:allocations:{verb}": _WRITE for verb in ("list", "manage", "update", "delete")},
    "placement:allocation_candidates:list": _READ,
    "placement:usages": f"{_READ} or rule:project_reader",
    "placement:reshaper:reshape": _WRITE,
}

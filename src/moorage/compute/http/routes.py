"""The table of the compute API."""

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from moorage.api import Api
from moorage.api.auth import Authenticator
from moorage.api.endpoint import ALWAYS, Endpoint, Range, names, since, until
from moorage.api.policy import Policies
from moorage.compute.http import (
    aggregates,
    flavors,
    groups,
    hosts,
    instance_actions,
    keypairs,
    quotas,
    server_actions,
    server_bodies,
    server_parts,
    servers,
    versions,
)
from moorage.compute.http.policies import DEFAULTS
from moorage.compute.service import ComputeService

# A project id may stand before every path; it says nothing, the token does.
STRIP = r"^/(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=/)"
PREFIX = "/v2.1"

_S = "/servers/{server_id}"


def _p(rule: str) -> str:
    return f"os_compute_api:{rule}"


def _action(
    name: str, handler: Any, rule: str, body: Any = None, versions: Range = ALWAYS, status: int = 202
) -> Endpoint:
    return Endpoint(
        "POST", f"{_S}/action", handler, _p(rule), body, action=name, versions=versions, status=status
    )


SERVERS = (
    Endpoint("GET", "/servers", servers.index, _p("servers:index"), query=servers.QUERY),
    Endpoint("POST", "/servers", servers.create, _p("servers:create"), server_bodies.CreateBody, status=202),
    Endpoint("GET", "/servers/detail", servers.details, _p("servers:detail"), query=servers.QUERY),
    Endpoint("GET", _S, servers.show, _p("servers:show")),
    Endpoint("PUT", _S, servers.update, _p("servers:update"), server_bodies.UpdateBody),
    Endpoint("DELETE", _S, servers.delete, _p("servers:delete"), status=204),
    _action("os-start", server_actions.start, "servers:start"),
    _action("os-stop", server_actions.stop, "servers:stop"),
    _action("reboot", server_actions.reboot, "servers:reboot", server_actions.Reboot),
    _action(
        "os-getConsoleOutput",
        server_actions.console_output,
        "os-console-output",
        server_actions.Console,
        status=200,
    ),
    _action("lock", server_actions.lock, "os-lock-server:lock", versions=until("2.72")),
    _action("lock", server_actions.lock, "os-lock-server:lock", server_actions.Lock | None, since("2.73")),
    _action("unlock", server_actions.unlock, "os-lock-server:unlock"),
    _action("forceDelete", servers.delete, "os-deferred-delete:force"),
    _action("os-resetState", servers.reset_state, "os-admin-actions:reset_state", server_actions.ResetState),
    _action(
        "addSecurityGroup", server_parts.add_security_group, "os-security-groups:add", server_parts.GroupName
    ),
    _action(
        "removeSecurityGroup",
        server_parts.remove_security_group,
        "os-security-groups:remove",
        server_parts.GroupName,
    ),
)

PARTS = (
    Endpoint("GET", f"{_S}/metadata", server_parts.metadata, _p("server-metadata:index")),
    Endpoint(
        "POST",
        f"{_S}/metadata",
        server_parts.add_metadata,
        _p("server-metadata:create"),
        server_parts.Metadata,
    ),
    Endpoint(
        "PUT",
        f"{_S}/metadata",
        server_parts.replace_metadata,
        _p("server-metadata:update_all"),
        server_parts.Metadata,
    ),
    Endpoint("GET", f"{_S}/metadata/{{key}}", server_parts.metadata_item, _p("server-metadata:show")),
    Endpoint(
        "PUT",
        f"{_S}/metadata/{{key}}",
        server_parts.set_metadata_item,
        _p("server-metadata:update"),
        server_parts.Item,
    ),
    Endpoint(
        "DELETE",
        f"{_S}/metadata/{{key}}",
        server_parts.delete_metadata_item,
        _p("server-metadata:delete"),
        status=204,
    ),
    Endpoint("GET", f"{_S}/tags", server_parts.tags, _p("os-server-tags:index"), versions=since("2.26")),
    Endpoint(
        "PUT",
        f"{_S}/tags",
        server_parts.replace_tags,
        _p("os-server-tags:update_all"),
        server_parts.Tags,
        versions=since("2.26"),
    ),
    Endpoint(
        "DELETE",
        f"{_S}/tags",
        server_parts.delete_tags,
        _p("os-server-tags:delete_all"),
        versions=since("2.26"),
        status=204,
    ),
    Endpoint(
        "GET",
        f"{_S}/tags/{{tag}}",
        server_parts.has_tag,
        _p("os-server-tags:show"),
        versions=since("2.26"),
        status=204,
    ),
    Endpoint(
        "PUT",
        f"{_S}/tags/{{tag}}",
        server_parts.add_tag,
        _p("os-server-tags:update"),
        versions=since("2.26"),
        status=201,
        statuses=(204,),
    ),
    Endpoint(
        "DELETE",
        f"{_S}/tags/{{tag}}",
        server_parts.delete_tag,
        _p("os-server-tags:delete"),
        versions=since("2.26"),
        status=204,
    ),
    Endpoint("GET", f"{_S}/ips", server_parts.addresses, _p("ips:index")),
    Endpoint("GET", f"{_S}/ips/{{network}}", server_parts.addresses_on, _p("ips:show")),
    Endpoint("GET", f"{_S}/os-interface", server_parts.interfaces, _p("os-attach-interfaces:list")),
    Endpoint(
        "GET", f"{_S}/os-interface/{{port_id}}", server_parts.interface, _p("os-attach-interfaces:show")
    ),
    Endpoint(
        "GET",
        f"{_S}/os-volume_attachments",
        server_parts.volume_attachments,
        _p("os-volumes-attachments:index"),
        query=names("limit", "offset", strict="2.75"),
    ),
    Endpoint("GET", f"{_S}/os-security-groups", server_parts.security_groups, _p("os-security-groups:list")),
    Endpoint(
        "GET",
        f"{_S}/os-instance-actions",
        instance_actions.index,
        _p("os-instance-actions:list"),
        query=instance_actions.QUERY,
    ),
    Endpoint(
        "GET",
        f"{_S}/os-instance-actions/{{request_id}}",
        instance_actions.show,
        _p("os-instance-actions:show"),
    ),
)

_F = "/flavors/{flavor_id}"
FLAVORS = (
    Endpoint("GET", "/flavors", flavors.index, _p("flavors"), query=flavors.QUERY),
    Endpoint("POST", "/flavors", flavors.create, _p("os-flavor-manage:create"), flavors.CreateBody),
    Endpoint("GET", "/flavors/detail", flavors.details, _p("flavors"), query=flavors.QUERY),
    Endpoint("GET", _F, flavors.show, _p("flavors")),
    Endpoint(
        "PUT", _F, flavors.update, _p("os-flavor-manage:update"), flavors.UpdateBody, versions=since("2.55")
    ),
    Endpoint("DELETE", _F, flavors.delete, _p("os-flavor-manage:delete"), status=202),
    Endpoint("GET", f"{_F}/os-extra_specs", flavors.specs, _p("os-flavor-extra-specs:index")),
    Endpoint(
        "POST", f"{_F}/os-extra_specs", flavors.add_specs, _p("os-flavor-extra-specs:create"), flavors.Specs
    ),
    Endpoint("GET", f"{_F}/os-extra_specs/{{key}}", flavors.spec, _p("os-flavor-extra-specs:show")),
    Endpoint(
        "PUT",
        f"{_F}/os-extra_specs/{{key}}",
        flavors.set_spec,
        _p("os-flavor-extra-specs:update"),
        dict[str, Any],
    ),
    Endpoint(
        "DELETE", f"{_F}/os-extra_specs/{{key}}", flavors.delete_spec, _p("os-flavor-extra-specs:delete")
    ),
    Endpoint("GET", f"{_F}/os-flavor-access", flavors.access, _p("os-flavor-access")),
    Endpoint(
        "POST",
        f"{_F}/action",
        flavors.grant,
        _p("os-flavor-access:add_tenant_access"),
        flavors.Tenant,
        action="addTenantAccess",
    ),
    Endpoint(
        "POST",
        f"{_F}/action",
        flavors.revoke,
        _p("os-flavor-access:remove_tenant_access"),
        flavors.Tenant,
        action="removeTenantAccess",
    ),
)

_USER = names("user_id", strict="2.75")
PEOPLE = (
    Endpoint("GET", "/os-keypairs", keypairs.index, _p("os-keypairs:index"), query=keypairs.PAGES),
    Endpoint(
        "POST",
        "/os-keypairs",
        keypairs.create,
        _p("os-keypairs:create"),
        keypairs.CreateBody,
        statuses=(201,),
    ),
    Endpoint("GET", "/os-keypairs/{name}", keypairs.show, _p("os-keypairs:show"), query=keypairs.QUERY),
    Endpoint(
        "DELETE",
        "/os-keypairs/{name}",
        keypairs.delete,
        _p("os-keypairs:delete"),
        query=keypairs.QUERY,
        status=204,
        statuses=(202,),
    ),
    Endpoint("GET", "/limits", quotas.limits, _p("limits"), query=names("tenant_id", strict="2.75")),
    Endpoint("GET", "/os-quota-sets/{project_id}", quotas.show, _p("os-quota-sets:show"), query=_USER),
    Endpoint(
        "GET", "/os-quota-sets/{project_id}/detail", quotas.detail, _p("os-quota-sets:detail"), query=_USER
    ),
    Endpoint("GET", "/os-quota-sets/{project_id}/defaults", quotas.defaults, _p("os-quota-sets:defaults")),
    Endpoint(
        "PUT",
        "/os-quota-sets/{project_id}",
        quotas.update,
        _p("os-quota-sets:update"),
        quotas.QuotaSet,
        query=_USER,
    ),
    Endpoint(
        "DELETE",
        "/os-quota-sets/{project_id}",
        quotas.delete,
        _p("os-quota-sets:delete"),
        query=_USER,
        status=202,
    ),
    Endpoint("GET", "/os-quota-class-sets/{class_id}", quotas.show_class, _p("os-quota-class-sets:show")),
    Endpoint(
        "PUT",
        "/os-quota-class-sets/{class_id}",
        quotas.update_class,
        _p("os-quota-class-sets:update"),
        quotas.QuotaClass,
    ),
    Endpoint(
        "GET",
        "/os-server-groups",
        groups.index,
        _p("os-server-groups:index"),
        query=names("all_projects", "limit", "offset", strict="2.75"),
    ),
    Endpoint("POST", "/os-server-groups", groups.create, _p("os-server-groups:create"), groups.CreateBody),
    Endpoint("GET", "/os-server-groups/{group_id}", groups.show, _p("os-server-groups:show")),
    Endpoint(
        "DELETE", "/os-server-groups/{group_id}", groups.delete, _p("os-server-groups:delete"), status=204
    ),
)

_H, _A = "/os-hypervisors/{hypervisor_id}", "/os-aggregates/{aggregate_id}"


def _aggregate_action(name: str, handler: Any, body: Any) -> Endpoint:
    return Endpoint("POST", f"{_A}/action", handler, _p(f"os-aggregates:{name}"), body, action=name)


HOSTS = (
    Endpoint("GET", "/os-availability-zone", hosts.zones, _p("os-availability-zone:list")),
    Endpoint("GET", "/os-availability-zone/detail", hosts.zone_details, _p("os-availability-zone:detail")),
    Endpoint("GET", "/os-hypervisors", hosts.hypervisors, _p("os-hypervisors:list"), query=hosts.PAGES),
    Endpoint(
        "GET",
        "/os-hypervisors/detail",
        hosts.hypervisor_details,
        _p("os-hypervisors:list-detail"),
        query=hosts.PAGES,
    ),
    Endpoint(
        "GET",
        "/os-hypervisors/statistics",
        hosts.statistics,
        _p("os-hypervisors:statistics"),
        versions=until("2.87"),
    ),
    Endpoint("GET", _H, hosts.hypervisor, _p("os-hypervisors:show"), query=hosts.QUERY),
    Endpoint("GET", f"{_H}/uptime", hosts.uptime, _p("os-hypervisors:uptime"), versions=until("2.87")),
    Endpoint("GET", f"{_H}/search", hosts.search, _p("os-hypervisors:search"), versions=until("2.52")),
    Endpoint("GET", f"{_H}/servers", hosts.servers_of, _p("os-hypervisors:servers"), versions=until("2.52")),
    Endpoint(
        "GET",
        "/os-services",
        hosts.services,
        _p("os-services:list"),
        query=names("host", "binary", strict="2.75"),
    ),
    Endpoint(
        "PUT",
        "/os-services/{service_id}",
        hosts.update_service_older,
        _p("os-services:update"),
        hosts.ServiceChange,
        versions=until("2.52"),
    ),
    Endpoint(
        "PUT",
        "/os-services/{service_id}",
        hosts.update_service,
        _p("os-services:update"),
        hosts.ServiceChange,
        versions=since("2.53"),
    ),
    Endpoint("GET", "/os-aggregates", aggregates.index, _p("os-aggregates:index")),
    Endpoint("POST", "/os-aggregates", aggregates.create, _p("os-aggregates:create"), aggregates.CreateBody),
    Endpoint("GET", _A, aggregates.show, _p("os-aggregates:show")),
    Endpoint("PUT", _A, aggregates.update, _p("os-aggregates:update"), aggregates.UpdateBody),
    Endpoint("DELETE", _A, aggregates.delete, _p("os-aggregates:delete")),
    _aggregate_action("add_host", aggregates.add_host, aggregates.HostName),
    _aggregate_action("remove_host", aggregates.remove_host, aggregates.HostName),
    _aggregate_action("set_metadata", aggregates.set_metadata, aggregates.SetMetadata),
)

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/", versions.version),
    *SERVERS,
    *PARTS,
    *FLAVORS,
    *PEOPLE,
    *HOSTS,
)

ROOT: tuple[Endpoint, ...] = (Endpoint("GET", "/", versions.versions),)


class _Versions:
    """The document of versions at the root, the API below its prefix."""

    def __init__(self, root: Api, api: Api) -> None:
        self._root, self._api = root, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        below = path == PREFIX or path.startswith(PREFIX + "/")
        await (self._api if below else self._root)(scope, receive, send)


def compute_api(
    service: ComputeService,
    *,
    authenticate: Authenticator,
    policy_file: str | None = None,
    public_url: str | None = None,
) -> ASGIApp:
    """The compute API over a service; ``public_url`` is the address of the root as clients reach it."""
    policies = Policies(DEFAULTS, policy_file)
    root = Api(
        "compute",
        service,
        ROOT,
        "compute",
        None,
        policies=policies,
        authenticate=authenticate,
        public_url=public_url,
    )
    api = Api(
        "compute",
        service,
        ENDPOINTS,
        "compute",
        versions.SCHEME,
        policies=policies,
        authenticate=authenticate,
        prefix=PREFIX,
        strip=STRIP,
        public_url=None if public_url is None else public_url.rstrip("/") + PREFIX,
    )
    return _Versions(root, api)

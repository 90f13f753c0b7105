"""The table of the compute API."""

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from moorage.api import Api
from moorage.api.answers import many, one
from moorage.api.auth import Authenticator
from moorage.api.endpoint import Endpoint, names, since, until
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
from moorage.compute.http import answers as a
from moorage.compute.http import server_answers as s
from moorage.compute.http.policies import DEFAULTS
from moorage.compute.service import ComputeService

# A project id may stand before every path; it says nothing, the token does.
STRIP = r"^/(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=/)"
PREFIX = "/v2.1"

_P = "os_compute_api:"
_S, _F = "/servers/{server_id}", "/flavors/{flavor_id}"
_Q, _H, _A = "/os-quota-sets/{project_id}", "/os-hypervisors/{hypervisor_id}", "/os-aggregates/{aggregate_id}"


def _action(name: str, handler: Any, rule: str, body: Any = None, **more: Any) -> Endpoint:
    return Endpoint("POST", f"{_S}/action", handler, _P + rule, body, action=name, **{"status": 202, **more})


# fmt: off
SERVERS = (
    Endpoint("GET", "/servers", servers.index, _P + "servers:index", query=servers.QUERY, response=s.SERVERS),
    Endpoint("POST", "/servers", servers.create, _P + "servers:create", server_bodies.CreateServer, status=202,
             response=s.ServersMade),
    Endpoint("GET", "/servers/detail", servers.details, _P + "servers:detail", query=servers.QUERY,
             response=s.SERVERS_DETAIL),
    Endpoint("GET", _S, servers.show, _P + "servers:show", response=s.SERVER),
    Endpoint("PUT", _S, servers.update, _P + "servers:update", server_bodies.UpdateServer, versions=until("2.74"),
             response=s.CHANGED_SERVER),
    Endpoint("PUT", _S, servers.update, _P + "servers:update", server_bodies.UpdateServer, versions=since("2.75"),
             response=s.SERVER),
    Endpoint("DELETE", _S, servers.delete, _P + "servers:delete", status=204),

    _action("os-start", server_actions.start, "servers:start"),
    _action("os-stop", server_actions.stop, "servers:stop"),
    _action("reboot", server_actions.reboot, "servers:reboot", server_actions.Reboot),
    _action("os-getConsoleOutput", server_actions.console_output, "os-console-output", server_actions.Console,
            status=200, response=s.ConsoleOutput),
    _action("lock", server_actions.lock, "os-lock-server:lock", versions=until("2.72")),
    _action("lock", server_actions.lock, "os-lock-server:lock", server_actions.Lock | None, versions=since("2.73")),
    _action("unlock", server_actions.unlock, "os-lock-server:unlock"),
    _action("forceDelete", servers.delete, "os-deferred-delete:force"),
    _action("os-resetState", servers.reset_state, "os-admin-actions:reset_state", server_actions.ResetState),
    _action("addSecurityGroup", server_parts.add_security_group, "os-security-groups:add", server_parts.GroupName),
    _action("removeSecurityGroup", server_parts.remove_security_group, "os-security-groups:remove",
            server_parts.GroupName),
)

PARTS = (
    Endpoint("GET", _S + "/metadata", server_parts.metadata, _P + "server-metadata:index", response=s.ServerMetadata),
    Endpoint("POST", _S + "/metadata", server_parts.add_metadata, _P + "server-metadata:create", server_parts.Metadata,
             response=s.ServerMetadata),
    Endpoint("PUT", _S + "/metadata", server_parts.replace_metadata, _P + "server-metadata:update_all",
             server_parts.Metadata, response=s.ServerMetadata),
    Endpoint("GET", _S + "/metadata/{key}", server_parts.metadata_item, _P + "server-metadata:show",
             response=s.MetadataItem),
    Endpoint("PUT", _S + "/metadata/{key}", server_parts.set_metadata_item, _P + "server-metadata:update",
             server_parts.Item, response=s.MetadataItem),
    Endpoint("DELETE", _S + "/metadata/{key}", server_parts.delete_metadata_item, _P + "server-metadata:delete",
             status=204),

    Endpoint("GET", _S + "/tags", server_parts.tags, _P + "os-server-tags:index", versions=since("2.26"),
             response=server_parts.Tags),
    Endpoint("PUT", _S + "/tags", server_parts.replace_tags, _P + "os-server-tags:update_all", server_parts.Tags,
             versions=since("2.26"), response=server_parts.Tags),
    Endpoint("DELETE", _S + "/tags", server_parts.delete_tags, _P + "os-server-tags:delete_all",
             versions=since("2.26"), status=204),
    Endpoint("GET", _S + "/tags/{tag}", server_parts.has_tag, _P + "os-server-tags:show", versions=since("2.26"),
             status=204),
    Endpoint("PUT", _S + "/tags/{tag}", server_parts.add_tag, _P + "os-server-tags:update", versions=since("2.26"),
             status=201, statuses=(204,)),
    Endpoint("DELETE", _S + "/tags/{tag}", server_parts.delete_tag, _P + "os-server-tags:delete",
             versions=since("2.26"), status=204),

    Endpoint("GET", _S + "/ips", server_parts.addresses, _P + "ips:index", response=s.Addresses),
    Endpoint("GET", _S + "/ips/{network}", server_parts.addresses_on, _P + "ips:show",
             response=dict[str, list[s.ShortAddress]]),
    Endpoint("GET", _S + "/os-interface", server_parts.interfaces, _P + "os-attach-interfaces:list",
             response=many("interfaceAttachments", s.Interface)),
    Endpoint("GET", _S + "/os-interface/{port_id}", server_parts.interface, _P + "os-attach-interfaces:show",
             response=one("interfaceAttachment", s.Interface)),
    Endpoint("GET", _S + "/os-volume_attachments", server_parts.volume_attachments, _P + "os-volumes-attachments:index",
             query=names("limit", "offset", strict="2.75"), response=s.VolumeAttachments),
    Endpoint("GET", _S + "/os-security-groups", server_parts.security_groups, _P + "os-security-groups:list",
             response=many("security_groups", s.ServerSecurityGroup)),
    Endpoint("GET", _S + "/os-instance-actions", instance_actions.index, _P + "os-instance-actions:list",
             query=instance_actions.QUERY, response=s.ACTIONS),
    Endpoint("GET", _S + "/os-instance-actions/{request_id}", instance_actions.show, _P + "os-instance-actions:show",
             response=one("instanceAction", s.ShownAction)),
)

FLAVORS = (
    Endpoint("GET", "/flavors", flavors.index, _P + "flavors", query=flavors.QUERY, response=a.FLAVORS),
    Endpoint("POST", "/flavors", flavors.create, _P + "os-flavor-manage:create", flavors.CreateFlavor, response=a.FLAVOR),
    Endpoint("GET", "/flavors/detail", flavors.details, _P + "flavors", query=flavors.QUERY,
             response=a.FLAVORS_DETAIL),
    Endpoint("GET", _F, flavors.show, _P + "flavors", response=a.FLAVOR),
    Endpoint("PUT", _F, flavors.update, _P + "os-flavor-manage:update", flavors.UpdateFlavor, versions=since("2.55"),
             response=a.FLAVOR),
    Endpoint("DELETE", _F, flavors.delete, _P + "os-flavor-manage:delete", status=202),
    Endpoint("GET", _F + "/os-extra_specs", flavors.specs, _P + "os-flavor-extra-specs:index", response=a.ExtraSpecs),
    Endpoint("POST", _F + "/os-extra_specs", flavors.add_specs, _P + "os-flavor-extra-specs:create", flavors.Specs,
             response=a.ExtraSpecs),
    Endpoint("GET", _F + "/os-extra_specs/{key}", flavors.spec, _P + "os-flavor-extra-specs:show",
             response=dict[str, str]),
    Endpoint("PUT", _F + "/os-extra_specs/{key}", flavors.set_spec, _P + "os-flavor-extra-specs:update", dict[str, Any],
             response=dict[str, str]),
    Endpoint("DELETE", _F + "/os-extra_specs/{key}", flavors.delete_spec, _P + "os-flavor-extra-specs:delete"),
    Endpoint("GET", _F + "/os-flavor-access", flavors.access, _P + "os-flavor-access", response=a.FLAVOR_ACCESS),
    Endpoint("POST", _F + "/action", flavors.grant, _P + "os-flavor-access:add_tenant_access", flavors.Tenant,
             action="addTenantAccess", response=a.FLAVOR_ACCESS),
    Endpoint("POST", _F + "/action", flavors.revoke, _P + "os-flavor-access:remove_tenant_access", flavors.Tenant,
             action="removeTenantAccess", response=a.FLAVOR_ACCESS),
)

_USER = names("user_id", strict="2.75")
PEOPLE = (
    Endpoint("GET", "/os-keypairs", keypairs.index, _P + "os-keypairs:index", query=keypairs.PAGES,
             response=a.KEYPAIRS),
    Endpoint("POST", "/os-keypairs", keypairs.create, _P + "os-keypairs:create", keypairs.CreateKeypair,
             versions=until("2.1"), response=one("keypair", a.CreatedKeypair)),
    Endpoint("POST", "/os-keypairs", keypairs.create, _P + "os-keypairs:create", keypairs.CreateKeypair,
             versions=since("2.2"), status=201, response=one("keypair", a.CreatedKeypair)),
    Endpoint("GET", "/os-keypairs/{name}", keypairs.show, _P + "os-keypairs:show", query=keypairs.QUERY,
             response=one("keypair", a.ShownKeypair)),
    Endpoint("DELETE", "/os-keypairs/{name}", keypairs.delete, _P + "os-keypairs:delete", query=keypairs.QUERY,
             versions=until("2.1"), status=202),
    Endpoint("DELETE", "/os-keypairs/{name}", keypairs.delete, _P + "os-keypairs:delete", query=keypairs.QUERY,
             versions=since("2.2"), status=204),

    Endpoint("GET", "/limits", quotas.limits, _P + "limits", query=names("tenant_id", strict="2.75"),
             response=one("limits", a.Limits)),
    Endpoint("GET", _Q, quotas.show, _P + "os-quota-sets:show", query=_USER, response=one("quota_set", a.QuotaSet)),
    Endpoint("GET", _Q + "/detail", quotas.detail, _P + "os-quota-sets:detail", query=_USER,
             response=one("quota_set", a.QuotaDetails)),
    Endpoint("GET", _Q + "/defaults", quotas.defaults, _P + "os-quota-sets:defaults",
             response=one("quota_set", a.QuotaSet)),
    Endpoint("PUT", _Q, quotas.update, _P + "os-quota-sets:update", quotas.QuotaSet, query=_USER,
             response=one("quota_set", a.ChangedQuotaSet)),
    Endpoint("DELETE", _Q, quotas.delete, _P + "os-quota-sets:delete", query=_USER, status=202),
    Endpoint("GET", "/os-quota-class-sets/{class_id}", quotas.show_class, _P + "os-quota-class-sets:show",
             response=one("quota_class_set", a.QuotaClass)),
    Endpoint("PUT", "/os-quota-class-sets/{class_id}", quotas.update_class, _P + "os-quota-class-sets:update",
             quotas.QuotaClass, response=one("quota_class_set", a.ChangedQuotaClass)),

    Endpoint("GET", "/os-server-groups", groups.index, _P + "os-server-groups:index",
             query=names("all_projects", "limit", "offset", strict="2.75"),
             response=many("server_groups", a.ServerGroup)),
    Endpoint("POST", "/os-server-groups", groups.create, _P + "os-server-groups:create", groups.CreateServerGroup,
             response=one("server_group", a.ServerGroup)),
    Endpoint("GET", "/os-server-groups/{group_id}", groups.show, _P + "os-server-groups:show",
             response=one("server_group", a.ServerGroup)),
    Endpoint("DELETE", "/os-server-groups/{group_id}", groups.delete, _P + "os-server-groups:delete", status=204),
)


def _aggregate_action(name: str, handler: Any, body: Any) -> Endpoint:
    rule = f"{_P}os-aggregates:{name}"
    return Endpoint("POST", f"{_A}/action", handler, rule, body, action=name, response=a.AGGREGATE)


HOSTS = (
    Endpoint("GET", "/os-availability-zone", hosts.zones, _P + "os-availability-zone:list",
             response=many("availabilityZoneInfo", a.Zone)),
    Endpoint("GET", "/os-availability-zone/detail", hosts.zone_details, _P + "os-availability-zone:detail",
             response=many("availabilityZoneInfo", a.ShownZone)),

    Endpoint("GET", "/os-hypervisors", hosts.hypervisors, _P + "os-hypervisors:list", query=hosts.PAGES,
             response=a.HYPERVISORS),
    Endpoint("GET", "/os-hypervisors/detail", hosts.hypervisor_details, _P + "os-hypervisors:list-detail",
             query=hosts.PAGES, response=a.HYPERVISORS_DETAIL),
    Endpoint("GET", "/os-hypervisors/statistics", hosts.statistics, _P + "os-hypervisors:statistics",
             versions=until("2.87"), response=one("hypervisor_statistics", a.HypervisorStatistics)),
    Endpoint("GET", _H, hosts.hypervisor, _P + "os-hypervisors:show", query=hosts.QUERY,
             response=one("hypervisor", a.ShownHypervisor)),
    Endpoint("GET", _H + "/uptime", hosts.uptime, _P + "os-hypervisors:uptime", versions=until("2.87"),
             response=one("hypervisor", a.HypervisorUptime)),
    Endpoint("GET", _H + "/search", hosts.search, _P + "os-hypervisors:search", versions=until("2.52"),
             response=many("hypervisors", a.Hypervisor)),
    Endpoint("GET", _H + "/servers", hosts.servers_of, _P + "os-hypervisors:servers", versions=until("2.52"),
             response=many("hypervisors", a.ListedHypervisor)),

    Endpoint("GET", "/os-services", hosts.services, _P + "os-services:list",
             query=names("host", "binary", strict="2.75"), response=many("services", a.Service)),
    Endpoint("PUT", "/os-services/{service_id}", hosts.update_service_older, _P + "os-services:update",
             hosts.OlderServiceChange, versions=until("2.52"), response=one("service", a.ChangedService)),
    Endpoint("PUT", "/os-services/{service_id}", hosts.update_service, _P + "os-services:update", hosts.ServiceChange,
             versions=since("2.53"), response=one("service", a.Service)),

    Endpoint("GET", "/os-aggregates", aggregates.index, _P + "os-aggregates:index", response=a.AGGREGATES),
    Endpoint("POST", "/os-aggregates", aggregates.create, _P + "os-aggregates:create", aggregates.CreateAggregate,
             response=one("aggregate", a.CreatedAggregate)),
    Endpoint("GET", _A, aggregates.show, _P + "os-aggregates:show", response=a.AGGREGATE),
    Endpoint("PUT", _A, aggregates.update, _P + "os-aggregates:update", aggregates.UpdateAggregate, response=a.AGGREGATE),
    Endpoint("DELETE", _A, aggregates.delete, _P + "os-aggregates:delete"),
    _aggregate_action("add_host", aggregates.add_host, aggregates.HostName),
    _aggregate_action("remove_host", aggregates.remove_host, aggregates.HostName),
    _aggregate_action("set_metadata", aggregates.set_metadata, aggregates.SetMetadata),
)
# fmt: on

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/", versions.version, response=one("version", a.ShownVersion)),
    *SERVERS,
    *PARTS,
    *FLAVORS,
    *PEOPLE,
    *HOSTS,
)

ROOT: tuple[Endpoint, ...] = (Endpoint("GET", "/", versions.versions, response=many("versions", a.Version)),)


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

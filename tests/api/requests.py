"""For every endpoint a request that a caller who may do it gets a good answer to. ``World`` knows the ids.

An endpoint without a row here is sent its path alone, which is right for most that read or delete.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import httpx
import msgspec

from moorage.agent import identity
from moorage.api.versions import Version
from moorage.core.ids import new_id
from moorage.wire.tickets import Ticket
from tests.support.faces import Row
from tests.support.roles import shown
from tests.support.undo import undoing
from tests.support.world import MARK, SPEC, World


class Ask(msgspec.Struct, frozen=True):
    """What differs from the path alone. ``at``: ids put in place of the world's usual ones. ``undone``: whether the
    request is answered in a transaction that is rolled back."""

    body: Any = None
    query: str = ""
    at: Mapping[str, str] = {}
    undone: bool = True


class Sent(msgspec.Struct, frozen=True):
    """One request, whole."""

    method: str
    url: str
    headers: dict[str, str]
    body: Any
    undone: bool


Make = Callable[[World], Ask]


def _body(**body: Any) -> Make:
    return lambda _: Ask(body)


def _of(name: str, /, **fields: Any) -> Make:
    return lambda _: Ask({name: fields})


def _action(name: str, value: Any = None) -> dict[str, Make]:
    return {f"POST /v2.1/servers/{{server_id}}/action [{name}]": lambda _: Ask({name: value})}


_S, _F, _A = "/v2.1/servers/{server_id}", "/v2.1/flavors/{flavor_id}", "/v2.1/os-aggregates/{aggregate_id}"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICw1mPJ3Co+rg5PKkxmBk0NWJA1OkLckjo+WDqEHsb4D"
_SIZE = {"ram": 64, "vcpus": 1, "disk": 1}

COMPUTE: dict[str, Make] = {
    "POST /v2.1/servers": lambda w: Ask(
        {
            "server": {
                "name": "n",
                "imageRef": w.image,
                "flavorRef": w.flavor,
                "networks": [{"uuid": w.network}],
            }
        }
    ),
    f"PUT {_S}": _of("server", name="n"),
    **_action("os-stop"),
    **_action("reboot", {"type": "SOFT"}),
    **_action("lock"),
    **_action("unlock"),
    **_action("forceDelete"),
    **_action("os-resetState", {"state": "error"}),
    f"POST {_S}/action [os-start]": lambda w: Ask({"os-start": None}, at={"server_id": w.stopped}),
    # The host answers over its own connection, so this one is not undone; it changes nothing.
    f"POST {_S}/action [os-getConsoleOutput]": lambda _: Ask(
        {"os-getConsoleOutput": {"length": 1}}, undone=False
    ),
    f"POST {_S}/action [addSecurityGroup]": lambda _: Ask({"addSecurityGroup": {"name": MARK}}),
    f"POST {_S}/action [removeSecurityGroup]": lambda w: Ask(
        {"removeSecurityGroup": {"name": "default"}}, at={"server_id": w.stopped}
    ),
    f"POST {_S}/metadata": _of("metadata", a="b"),
    f"PUT {_S}/metadata": _of("metadata", a="b"),
    f"PUT {_S}/metadata/{{key}}": _of("meta", **{MARK: "b"}),
    f"PUT {_S}/tags": _body(tags=["a"]),
    "POST /v2.1/flavors": _of("flavor", name="n", **_SIZE),
    f"PUT {_F}": _of("flavor", description="d"),
    f"POST {_F}/os-extra_specs": _of("extra_specs", a="b"),
    f"PUT {_F}/os-extra_specs/{{key}}": _body(**{SPEC: "2"}),
    f"GET {_F}/os-flavor-access": lambda w: Ask(at={"flavor_id": w.private_flavor}),
    f"POST {_F}/action [addTenantAccess]": lambda w: Ask(
        {"addTenantAccess": {"tenant": "another"}}, at={"flavor_id": w.private_flavor}
    ),
    f"POST {_F}/action [removeTenantAccess]": lambda w: Ask(
        {"removeTenantAccess": {"tenant": w.project}}, at={"flavor_id": w.private_flavor}
    ),
    "POST /v2.1/os-keypairs": _of("keypair", name="n", public_key=_KEY),
    "PUT /v2.1/os-quota-sets/{project_id}": _of("quota_set", instances=20),
    "PUT /v2.1/os-quota-class-sets/{class_id}": _of("quota_class_set", instances=20),
    "POST /v2.1/os-server-groups": _of("server_group", name="n", policy="affinity"),
    "GET /v2.1/os-hypervisors/{hypervisor_id}": lambda w: Ask(at={"hypervisor_id": w.host_id}),
    "GET /v2.1/os-hypervisors/{hypervisor_id}/search": lambda w: Ask(at={"hypervisor_id": w.host}),
    "GET /v2.1/os-hypervisors/{hypervisor_id}/servers": lambda w: Ask(at={"hypervisor_id": w.host}),
    "PUT /v2.1/os-services/{service_id} (-2.52)": lambda w: Ask(
        {"host": w.host, "binary": "nova-compute"}, at={"service_id": "enable"}
    ),
    "PUT /v2.1/os-services/{service_id} (2.53-)": _body(status="enabled"),
    "POST /v2.1/os-aggregates": _of("aggregate", name="n"),
    f"PUT {_A}": _of("aggregate", name="n"),
    f"POST {_A}/action [add_host]": lambda w: Ask({"add_host": {"host": w.host}}),
    f"POST {_A}/action [remove_host]": lambda w: Ask(
        {"remove_host": {"host": w.host}}, at={"aggregate_id": w.full_aggregate}
    ),
    f"POST {_A}/action [set_metadata]": _of("set_metadata", metadata={"a": "b"}),
}

NETWORK: dict[str, Make] = {
    "POST /v2.0/networks": _of("network", name="n"),
    "PUT /v2.0/networks/{id}": _of("network", name="n"),
    "DELETE /v2.0/networks/{id}": lambda w: Ask(at={"id": w.empty_network}),
    "POST /v2.0/subnets": lambda w: Ask(
        {"subnet": {"network_id": w.network, "cidr": "10.8.0.0/24", "ip_version": 4}}
    ),
    "DELETE /v2.0/subnets/{id}": lambda w: Ask(at={"id": w.empty_subnet}),
    "PUT /v2.0/subnets/{id}": _of("subnet", name="n"),
    "POST /v2.0/ports": lambda w: Ask({"port": {"network_id": w.network}}),
    "PUT /v2.0/ports/{id}": _of("port", name="n"),
    "POST /v2.0/security-groups": _of("security_group", name="n"),
    "PUT /v2.0/security-groups/{id}": _of("security_group", name="n"),
    "POST /v2.0/security-group-rules": lambda w: Ask(
        {"security_group_rule": {"security_group_id": w.group, "direction": "egress", "protocol": "udp"}}
    ),
    "PUT /v2.0/quotas/{id}": _of("quota", port=100),
    **{
        f"PUT /v2.0/{plural}/{{id}}/tags": _body(tags=["a"])
        for plural in ("networks", "subnets", "ports", "security-groups")
    },
}

_P = "/resource_providers/{uuid}"
_SPARE: Make = lambda w: Ask(at={"uuid": w.spare})  # noqa: E731


# Claims that arrive together share a transaction, which is not the request's own and is not rolled back: each is for a
# consumer of its own.
def _claim(**more: Any) -> Make:
    def make(world: World) -> Ask:
        resources = {world.host_id: {"resources": {"VCPU": 1}}}
        claim = {"project_id": world.project, "user_id": "u", "allocations": resources, **more}
        return Ask(claim, at={"consumer": new_id()})

    return make


def _claims(**more: Any) -> Make:
    return lambda world: Ask({new_id(): _claim(**more)(world).body})


def _old_claim(**more: Any) -> Make:
    def make(world: World) -> Ask:
        allocation = {"resource_provider": {"uuid": world.host_id}, "resources": {"VCPU": 1}}
        return Ask({"allocations": [allocation], **more}, at={"consumer": new_id()})

    return make


_NEW: Any = {"consumer_generation": None}
_TYPED: Any = {**_NEW, "consumer_type": "INSTANCE"}
_INVENTORY = {"resource_provider_generation": 1, "total": 4}

PLACEMENT: dict[str, Make] = {
    "POST /resource_classes (1.2-)": _body(name="CUSTOM_NEW"),
    "PUT /resource_classes/{name} (1.2-1.6)": _body(name="CUSTOM_NEW"),
    "POST /resource_providers (-1.13)": _body(name="n"),
    "POST /resource_providers (1.14-1.19)": _body(name="n"),
    "POST /resource_providers (1.20-)": _body(name="n"),
    f"PUT {_P} (-1.13)": lambda w: Ask({"name": "n"}, at={"uuid": w.spare}),
    f"PUT {_P} (1.14-)": lambda w: Ask({"name": "n"}, at={"uuid": w.spare}),
    f"DELETE {_P}": _SPARE,
    f"POST {_P}/inventories": lambda w: Ask({"resource_class": "VCPU", "total": 4}, at={"uuid": w.spare}),
    f"PUT {_P}/inventories": lambda w: Ask(
        {"resource_provider_generation": 0, "inventories": {}}, at={"uuid": w.spare}
    ),
    f"DELETE {_P}/inventories (1.5-)": _SPARE,
    f"PUT {_P}/inventories/{{resource_class}}": lambda w: Ask(
        _INVENTORY, at={"uuid": w.stocked, "resource_class": "VCPU"}
    ),
    f"DELETE {_P}/inventories/{{resource_class}}": lambda w: Ask(
        at={"uuid": w.stocked, "resource_class": "VCPU"}
    ),
    f"PUT {_P}/aggregates (1.1-1.18)": lambda w: Ask([], at={"uuid": w.spare}),
    f"PUT {_P}/aggregates (1.19-)": lambda w: Ask(
        {"aggregates": [], "resource_provider_generation": 0}, at={"uuid": w.spare}
    ),
    f"PUT {_P}/traits (1.6-)": lambda w: Ask(
        {"traits": [], "resource_provider_generation": 0}, at={"uuid": w.spare}
    ),
    f"DELETE {_P}/traits (1.6-)": _SPARE,
    "POST /allocations (1.13-1.27)": _claims(),
    "POST /allocations (1.28-1.33)": _claims(**_NEW),
    "POST /allocations (1.34-1.37)": _claims(**_NEW),
    "POST /allocations (1.38-)": _claims(**_TYPED),
    "PUT /allocations/{consumer} (-1.7)": _old_claim(),
    "PUT /allocations/{consumer} (1.8-1.11)": _old_claim(project_id="p", user_id="u"),
    "PUT /allocations/{consumer} (1.12-1.27)": _claim(),
    "PUT /allocations/{consumer} (1.28-1.33)": _claim(**_NEW),
    "PUT /allocations/{consumer} (1.34-1.37)": _claim(**_NEW),
    "PUT /allocations/{consumer} (1.38-)": _claim(**_TYPED),
    "GET /allocation_candidates": lambda _: Ask(query="resources=VCPU:1"),
    "GET /usages": lambda w: Ask(query=f"project_id={w.project}"),
    "POST /reshaper (1.30-1.33)": _body(inventories={}, allocations={}),
    "POST /reshaper (1.34-1.37)": _body(inventories={}, allocations={}),
    "POST /reshaper (1.38-)": _body(inventories={}, allocations={}),
}

_CSR = identity.request_for(identity.new_key())
OURS: dict[str, Make] = {
    "POST /moorage/v1/operations/{operation_id}/resume": lambda w: Ask(at={"operation_id": w.stuck}),
    "POST /moorage/v1/operations/{operation_id}/abandon": lambda w: Ask(at={"operation_id": w.stuck}),
    "GET /moorage/v1/hosts/{name}": lambda w: Ask(at={"name": w.host}),
    "POST /moorage/v1/hosts/{name}/ticket": lambda w: Ask(at={"name": w.host}),
    "POST /moorage/v1/hosts/{name}/revoke": lambda w: Ask(at={"name": w.host}),
    "GET /moorage/v1/placement/explain": lambda _: Ask(query="resources=VCPU:1"),
    "GET /moorage/v1/placement/capacity": lambda _: Ask(query="resources=VCPU:1"),
    "GET /moorage/v1/openapi/{api}": lambda _: Ask(at={"api": "control"}),
    "POST /agent/v1/enroll": lambda w: Ask(
        {
            "token": Ticket.parse(w.ticket).token,
            "csr": _CSR,
            "name": "new-host",
            "protocol": 3,
            "agent_version": "1",
        }
    ),
    "POST /agent/v1/renew": _body(csr=_CSR),
    "POST /agent/v1/guests": _body(guests=[]),
    "GET /agent/v1/commands": lambda _: Ask(query="wait=0"),
    "POST /agent/v1/results": _body(),
    "POST /agent/v1/events": _body(),
    "POST /agent/v1/report": lambda _: Ask(
        {
            "vcpus": 64,
            "memory_mb": 262144,
            "disk_gb": 4000,
            "hypervisor_type": "simulated",
            "hypervisor_version": 1,
            "cpu_arch": "x86_64",
            "datapath": "simulated",
            "protocol": 3,
            "agent_version": "1",
        }
    ),
}

ASKS: Mapping[str, Make] = {**COMPUTE, **NETWORK, **PLACEMENT, **OURS}


# Until this version such a request is another.
OLDER: Mapping[str, tuple[Version, Make]] = {
    "POST /v2.1/os-server-groups": ((2, 63), _of("server_group", name="n", policies=["affinity"])),
    "GET /v2.1/os-hypervisors/{hypervisor_id}": (
        (2, 52),
        lambda w: Ask(at={"hypervisor_id": w.host_number}),
    ),
    "GET /v2.1/os-hypervisors/{hypervisor_id}/uptime": (
        (2, 52),
        lambda w: Ask(at={"hypervisor_id": w.host_number}),
    ),
}


def _pair(plural: str, name: str, /, **fields: Any) -> dict[str, tuple[Make, ...]]:
    """A bulk create of a resource in the world's network."""
    return {
        f"POST /v2.0/{plural}": (
            lambda w: Ask({name + "s": [{k: _filled(w, v) for k, v in fields.items()}]}),
        )
    }


def _filled(world: World, value: Any) -> Any:
    return getattr(world, value[1:]) if isinstance(value, str) and value.startswith("@") else value


def _server(more: dict[str, Any]) -> Make:
    def make(world: World) -> Ask:
        ask = COMPUTE["POST /v2.1/servers"](world)
        return Ask({"server": {**ask.body["server"], **more}})

    return make


_PAGE: tuple[Make, ...] = (lambda _: Ask(query="limit=1"),)
# Requests of the same kinds that get answers with more in them; in old versions some may be refused.
MORE: Mapping[str, tuple[Make, ...]] = {
    **dict.fromkeys(
        (
            "GET /v2.1/servers", "GET /v2.1/servers/detail", "GET /v2.1/flavors", "GET /v2.1/flavors/detail",
            "GET /v2.1/os-keypairs", f"GET {_S}/os-instance-actions", "GET /v2.0/networks", "GET /v2.0/subnets",
            "GET /v2.0/ports", "GET /v2.0/security-groups", "GET /v2.0/security-group-rules",
        ),
        _PAGE,
    ),
    "GET /moorage/v1/operations": (lambda _: Ask(query="limit=1&state=all"),),
    "GET /v2.1/os-hypervisors": (*_PAGE, lambda _: Ask(query="with_servers=true")),
    "GET /v2.1/os-hypervisors/detail": (*_PAGE, lambda _: Ask(query="with_servers=true")),
    "POST /v2.1/servers": (_server({"adminPass": "p"}), _server({"return_reservation_id": True})),
    "POST /v2.1/os-keypairs": (_of("keypair", name="n"),),
    "PUT /v2.1/os-services/{service_id}": (
        lambda w: Ask(
            {"host": w.host, "binary": "nova-compute", "disabled_reason": "r"},
            at={"service_id": "disable-log-reason"},
        ),
    ),
    **_pair("networks", "network", name="n"),
    **_pair(
        "subnets",
        "subnet",
        network_id="@network",
        cidr="10.8.0.0/24",
        ip_version=4,
        host_routes=[{"destination": "10.7.0.0/24", "nexthop": "10.8.0.9"}],
    ),
    **_pair(
        "ports",
        "port",
        network_id="@network",
        allowed_address_pairs=[
            {"ip_address": "10.9.0.77"},
            {"ip_address": "10.9.0.78", "mac_address": "fa:16:3e:00:00:01"},
        ],
        extra_dhcp_opts=[{"opt_name": "mtu", "opt_value": "1400"}],
    ),
    **_pair("security-groups", "security_group", name="n"),
    **_pair(
        "security-group-rules", "security_group_rule", security_group_id="@group", direction="egress", protocol="udp"
    ),
}  # fmt: skip


def ask_of(world: World, row: Row, version: Version | None = None) -> Ask:
    """The row of the tables above for an endpoint, at the newest version that has it unless another is given.

    Names of rows that hold for every version leave the versions out.
    """
    name = row.name.partition(" ")[2]
    plain = name.partition(" (")[0]
    last, older = OLDER.get(plain, (None, None))
    if last is not None and version is not None and version <= last:
        make = older
    else:
        make = ASKS.get(name) or ASKS.get(plain)
    return make(world) if make is not None else Ask()


def more_of(world: World, row: Row) -> list[Ask]:
    """Further requests of an endpoint, whose answers have more in them."""
    plain = row.name.partition(" ")[2].partition(" (")[0]
    return [make(world) for make in MORE.get(plain, ())]


def prepare(world: World, row: Row, ask: Ask | None = None) -> Sent:
    """The request for an endpoint: its usual one, unless another is given."""
    ask = ask or ask_of(world, row)
    path = row.path
    for name, value in ask.at.items():
        path = path.replace(f"{{{name}}}", value)
    url = world.path(row.port, path) + (f"?{ask.query}" if ask.query else "")
    return Sent(row.endpoint.method, url, row.headers, ask.body, ask.undone)


async def send(app: Any, sent: Sent, headers: dict[str, str]) -> httpx.Response:
    """Ask the application; it changes nothing where the request says so."""
    transport = httpx.ASGITransport(shown(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://cloud", trust_env=False) as client:
        with undoing() if sent.undone else nullcontext():
            return await client.request(
                sent.method, sent.url, headers={**sent.headers, **headers}, json=sent.body
            )

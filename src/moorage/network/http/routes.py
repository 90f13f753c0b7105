"""The table of the Networking API."""

from typing import Any

from moorage.api import Api, Endpoint
from moorage.api.auth import Authenticator
from moorage.api.policy import Policies
from moorage.network.http import answers as a
from moorage.network.http import bodies as b
from moorage.network.http import discovery, networks, ports, quotas, security_groups, subnets, tags
from moorage.network.http.common import FIELDS, IF_MATCH, Agents, NetworkApp, filters
from moorage.network.http.policies import DEFAULTS
from moorage.network.networks import FILTERS as NETWORK_FILTERS
from moorage.network.ports import FILTERS as PORT_FILTERS
from moorage.network.security_groups import FILTERS as GROUP_FILTERS
from moorage.network.security_groups import RULE_FILTERS
from moorage.network.service import NetworkService
from moorage.network.subnets import FILTERS as SUBNET_FILTERS
from moorage.store.database import Database


def _tags(plural: str, name: str) -> tuple[Endpoint, ...]:
    rows = []
    for (method, rest), handler in tags.handlers(plural).items():
        policy = f"get_{name}" if method == "GET" else f"update_{name}"
        status = 204 if method == "DELETE" or (method == "GET" and rest) else 201 if rest else 200
        body = b.Tags if (method, rest) == ("PUT", "") else None
        path = f"/v2.0/{plural}/{{id}}/tags{rest}"
        answer = b.Tags if status == 200 else None
        rows.append(Endpoint(method, path, handler, policy, body=body, status=status, response=answer))
    return tuple(rows)


# fmt: off
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET",    "/",                               discovery.versions, response=a.VERSIONS),
    Endpoint("GET",    "/v2.0",                           discovery.resources, response=a.RESOURCES),
    Endpoint("GET",    "/v2.0/extensions",                discovery.extensions,          "get_extension", response=a.EXTENSIONS),
    Endpoint("GET",    "/v2.0/extensions/{id}",           discovery.extension,           "get_extension", response=a.EXTENSION),
    Endpoint("GET",    "/v2.0/agents",                    discovery.agents,              "get_agent", query=discovery.AGENT_FILTERS, response=a.AGENTS),
    Endpoint("GET",    "/v2.0/agents/{id}",               discovery.agent,               "get_agent", response=a.AGENT),

    Endpoint("GET",    "/v2.0/networks",                  networks.index,                "get_network", query=filters(NETWORK_FILTERS), response=a.NETWORKS),
    Endpoint("POST",   "/v2.0/networks",                  networks.create,               "create_network", body=b.CreateNetwork, status=201, response=a.NEW_NETWORK),
    Endpoint("GET",    "/v2.0/networks/{id}",             networks.show,                 "get_network", query=FIELDS, response=a.NETWORK),
    Endpoint("PUT",    "/v2.0/networks/{id}",             networks.update,               "update_network", body=b.UpdateNetwork, response=a.NETWORK, headers=IF_MATCH),
    Endpoint("DELETE", "/v2.0/networks/{id}",             networks.delete,               "delete_network", status=204, headers=IF_MATCH),

    Endpoint("GET",    "/v2.0/subnets",                   subnets.index,                 "get_subnet", query=filters(SUBNET_FILTERS), response=a.SUBNETS),
    Endpoint("POST",   "/v2.0/subnets",                   subnets.create,                "create_subnet", body=b.CreateSubnet, status=201, response=a.NEW_SUBNET),
    Endpoint("GET",    "/v2.0/subnets/{id}",              subnets.show,                  "get_subnet", query=FIELDS, response=a.SUBNET),
    Endpoint("PUT",    "/v2.0/subnets/{id}",              subnets.update,                "update_subnet", body=b.UpdateSubnet, response=a.SUBNET, headers=IF_MATCH),
    Endpoint("DELETE", "/v2.0/subnets/{id}",              subnets.delete,                "delete_subnet", status=204, headers=IF_MATCH),

    Endpoint("GET",    "/v2.0/ports",                     ports.index,                   "get_port", query=filters(PORT_FILTERS), response=a.PORTS),
    Endpoint("POST",   "/v2.0/ports",                     ports.create,                  "create_port", body=b.CreatePort, status=201, response=a.NEW_PORT),
    Endpoint("GET",    "/v2.0/ports/{id}",                ports.show,                    "get_port", query=FIELDS, response=a.PORT),
    Endpoint("PUT",    "/v2.0/ports/{id}",                ports.update,                  "update_port", body=b.UpdatePort, response=a.PORT, headers=IF_MATCH),
    Endpoint("DELETE", "/v2.0/ports/{id}",                ports.delete,                  "delete_port", status=204, headers=IF_MATCH),

    Endpoint("GET",    "/v2.0/security-groups",           security_groups.index,         "get_security_group", query=filters(GROUP_FILTERS), response=a.GROUPS),
    Endpoint("POST",   "/v2.0/security-groups",           security_groups.create,        "create_security_group", body=b.CreateGroup, status=201, response=a.NEW_GROUP),
    Endpoint("GET",    "/v2.0/security-groups/{id}",      security_groups.show,          "get_security_group", query=FIELDS, response=a.GROUP),
    Endpoint("PUT",    "/v2.0/security-groups/{id}",      security_groups.update,        "update_security_group", body=b.UpdateGroup, response=a.GROUP, headers=IF_MATCH),
    Endpoint("DELETE", "/v2.0/security-groups/{id}",      security_groups.delete,        "delete_security_group", status=204, headers=IF_MATCH),

    Endpoint("GET",    "/v2.0/security-group-rules",      security_groups.rule_index,    "get_security_group_rule", query=filters(RULE_FILTERS), response=a.RULES),
    Endpoint("POST",   "/v2.0/security-group-rules",      security_groups.create_rules,  "create_security_group_rule", body=b.CreateRule, status=201, response=a.NEW_RULE),
    Endpoint("GET",    "/v2.0/security-group-rules/{id}", security_groups.show_rule,     "get_security_group_rule", query=FIELDS, response=a.RULE),
    Endpoint("DELETE", "/v2.0/security-group-rules/{id}", security_groups.delete_rule,   "delete_security_group_rule", status=204, headers=IF_MATCH),

    Endpoint("GET",    "/v2.0/quotas",                    quotas.index,                  "get_quota", response=a.QuotaList),
    Endpoint("GET",    "/v2.0/quotas/{id}",               quotas.show,                   "get_quota", response=a.Quota),
    Endpoint("GET",    "/v2.0/quotas/{id}/default",       quotas.defaults,               "get_quota", response=a.Quota),
    Endpoint("GET",    "/v2.0/quotas/{id}/details",       quotas.details,                "get_quota", response=a.QuotaDetails),
    Endpoint("GET",    "/v2.0/quotas/{id}/details.json",  quotas.details,                "get_quota", response=a.QuotaDetails),
    Endpoint("PUT",    "/v2.0/quotas/{id}",               quotas.update,                 "update_quota", body=b.UpdateQuota, response=a.Quota),
    Endpoint("DELETE", "/v2.0/quotas/{id}",               quotas.delete,                 "delete_quota", status=204),

    *_tags("networks", "network"),
    *_tags("subnets", "subnet"),
    *_tags("ports", "port"),
    *_tags("security-groups", "security_group"),
)
# fmt: on


def network_api(
    service: NetworkService,
    database: Database,
    *,
    authenticate: Authenticator,
    agents: Agents | None = None,
    policy_file: str | None = None,
    **more: Any,
) -> Api:
    """The Networking API over a service. ``agents`` lists the hosts; ``more`` goes to the Api (prefix, public_url)."""
    app = NetworkApp(database, service, agents)
    policies = Policies(DEFAULTS, policy_file)
    return Api(
        "network", app, ENDPOINTS, "network", None, policies=policies, authenticate=authenticate, **more
    )

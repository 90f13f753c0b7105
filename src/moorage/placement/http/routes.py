"""The Placement API in one table."""

from __future__ import annotations

from moorage.api import Endpoint, between, since, until
from moorage.api.auth import Authenticator
from moorage.api.policy import Policies
from moorage.placement.http import (
    aggregates,
    allocation_candidates,
    allocations,
    inventories,
    queries,
    reshaper,
    resource_classes,
    resource_providers,
    root,
    traits,
    usages,
)
from moorage.placement.http import answers as a
from moorage.placement.http.app import PlacementApi, PlacementVersions
from moorage.placement.http.common import FIRST, INDEX_ASKED, INDEX_TOLD, LATEST, Uuid
from moorage.placement.http.policies import DEFAULTS
from moorage.placement.service import PlacementService

_P = "placement:resource_providers"
_C = "placement:resource_classes"
_ONE = "/resource_providers/{uuid}"
_INV = f"{_ONE}/inventories"

# fmt: off
ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/", root.versions, response=a.VERSIONS),

    Endpoint("GET", "/resource_classes", resource_classes.list_classes, f"{_C}:list", versions=since("1.2"),
             response=a.RESOURCE_CLASSES),
    Endpoint("POST", "/resource_classes", resource_classes.create_class, f"{_C}:create", versions=since("1.2"),
             body=resource_classes.ResourceClassBody, status=201),
    Endpoint("GET", "/resource_classes/{name}", resource_classes.show_class, f"{_C}:show", versions=since("1.2"),
             response=a.ResourceClass),
    Endpoint("PUT", "/resource_classes/{name}", resource_classes.rename_class, f"{_C}:update",
             versions=between("1.2", "1.6"), body=resource_classes.ResourceClassBody, response=a.ResourceClass),
    Endpoint("PUT", "/resource_classes/{name}", resource_classes.ensure_class, f"{_C}:update", versions=since("1.7"),
             status=201, statuses=(204,)),
    Endpoint("DELETE", "/resource_classes/{name}", resource_classes.delete_class, f"{_C}:delete",
             versions=since("1.2"), status=204),

    Endpoint("GET", "/traits", traits.list_traits, "placement:traits:list", versions=since("1.6"),
             query=traits.QUERY, response=a.TraitNames),
    Endpoint("GET", "/traits/{name}", traits.show_trait, "placement:traits:show", versions=since("1.6"),
             status=204),
    Endpoint("PUT", "/traits/{name}", traits.ensure_trait, "placement:traits:update", versions=since("1.6"),
             status=201, statuses=(204,)),
    Endpoint("DELETE", "/traits/{name}", traits.delete_trait, "placement:traits:delete", versions=since("1.6"),
             status=204),

    Endpoint("GET", "/resource_providers", resource_providers.list_providers, f"{_P}:list",
             query=resource_providers.QUERY, response=a.RESOURCE_PROVIDERS),
    Endpoint("POST", "/resource_providers", resource_providers.create_provider, f"{_P}:create",
             versions=until("1.13"), body=resource_providers.CreateProvider, status=201),
    Endpoint("POST", "/resource_providers", resource_providers.create_provider, f"{_P}:create",
             versions=between("1.14", "1.19"), body=resource_providers.CreateNestedProvider, status=201),
    Endpoint("POST", "/resource_providers", resource_providers.create_provider, f"{_P}:create",
             versions=since("1.20"), body=resource_providers.CreateNestedProvider, response=a.ResourceProvider),
    Endpoint("GET", _ONE, resource_providers.show_provider, f"{_P}:show", response=a.ResourceProvider),
    Endpoint("PUT", _ONE, resource_providers.update_provider, f"{_P}:update", versions=until("1.13"),
             body=resource_providers.UpdateProvider, response=a.ResourceProvider),
    Endpoint("PUT", _ONE, resource_providers.update_provider, f"{_P}:update", versions=since("1.14"),
             body=resource_providers.UpdateNestedProvider, response=a.ResourceProvider),
    Endpoint("DELETE", _ONE, resource_providers.delete_provider, f"{_P}:delete", status=204),

    Endpoint("GET", _INV, inventories.list_inventories, f"{_P}:inventories:list", response=a.ProviderInventories),
    Endpoint("POST", _INV, inventories.create_inventory, f"{_P}:inventories:create", body=inventories.NewInventory,
             status=201, response=a.OneInventory),
    Endpoint("PUT", _INV, inventories.set_inventories, f"{_P}:inventories:update", body=inventories.Inventories,
             response=a.ProviderInventories),
    Endpoint("DELETE", _INV, inventories.delete_inventories, f"{_P}:inventories:delete", versions=since("1.5"),
             status=204),
    Endpoint("GET", _INV + "/{resource_class}", inventories.show_inventory, f"{_P}:inventories:show",
             response=a.OneInventory),
    Endpoint("PUT", _INV + "/{resource_class}", inventories.update_inventory, f"{_P}:inventories:update",
             body=inventories.ChangedInventory, response=a.OneInventory),
    Endpoint("DELETE", _INV + "/{resource_class}", inventories.delete_inventory, f"{_P}:inventories:delete",
             status=204),

    Endpoint("GET", _ONE + "/usages", usages.provider_usages, f"{_P}:usages", response=a.ProviderUsages),
    Endpoint("GET", _ONE + "/aggregates", aggregates.show_aggregates, f"{_P}:aggregates:list",
             versions=since("1.1"), response=a.ProviderAggregates),
    Endpoint("PUT", _ONE + "/aggregates", aggregates.set_aggregates, f"{_P}:aggregates:update",
             versions=between("1.1", "1.18"), body=aggregates.AggregateList, response=a.ProviderAggregates),
    Endpoint("PUT", _ONE + "/aggregates", aggregates.set_aggregates, f"{_P}:aggregates:update",
             versions=since("1.19"), body=aggregates.Aggregates, response=a.ProviderAggregates),
    Endpoint("GET", _ONE + "/traits", traits.show_provider_traits, f"{_P}:traits:list", versions=since("1.6"),
             response=a.TraitsOfProvider),
    Endpoint("PUT", _ONE + "/traits", traits.set_provider_traits, f"{_P}:traits:update", versions=since("1.6"),
             body=traits.ProviderTraits, response=a.TraitsOfProvider),
    Endpoint("DELETE", _ONE + "/traits", traits.delete_provider_traits, f"{_P}:traits:delete",
             versions=since("1.6"), status=204),
    Endpoint("GET", _ONE + "/allocations", allocations.provider_allocations, f"{_P}:allocations:list",
             response=a.ProviderAllocations),

    Endpoint("POST", "/allocations", allocations.post_allocations, "placement:allocations:manage",
             versions=between("1.13", "1.27"), body=dict[Uuid, allocations.Post113], status=204),
    Endpoint("POST", "/allocations", allocations.post_allocations, "placement:allocations:manage",
             versions=between("1.28", "1.33"), body=dict[Uuid, allocations.Write128], status=204),
    Endpoint("POST", "/allocations", allocations.post_allocations, "placement:allocations:manage",
             versions=between("1.34", "1.37"), body=dict[Uuid, allocations.Write134], status=204),
    Endpoint("POST", "/allocations", allocations.post_allocations, "placement:allocations:manage",
             versions=since("1.38"), body=dict[Uuid, allocations.Write138], status=204),
    Endpoint("GET", "/allocations/{consumer}", allocations.show_allocations, "placement:allocations:list",
             response=a.ConsumerAllocations),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=until("1.7"), body=allocations.Write10, status=204),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=between("1.8", "1.11"), body=allocations.Write18, status=204),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=between("1.12", "1.27"), body=allocations.Write112, status=204),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=between("1.28", "1.33"), body=allocations.Write128, status=204),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=between("1.34", "1.37"), body=allocations.Write134, status=204),
    Endpoint("PUT", "/allocations/{consumer}", allocations.put_allocations, "placement:allocations:update",
             versions=since("1.38"), body=allocations.Write138, status=204),
    Endpoint("DELETE", "/allocations/{consumer}", allocations.delete_allocations, "placement:allocations:delete",
             status=204),

    Endpoint("GET", "/allocation_candidates", allocation_candidates.list_candidates,
             "placement:allocation_candidates:list", versions=between("1.10", "1.11"), query=queries.CANDIDATES,
             response=a.ListedCandidates, headers=INDEX_ASKED, tells=INDEX_TOLD),
    Endpoint("GET", "/allocation_candidates", allocation_candidates.list_candidates,
             "placement:allocation_candidates:list", versions=since("1.12"), query=queries.CANDIDATES,
             response=a.Candidates, headers=INDEX_ASKED, tells=INDEX_TOLD),
    # The rule is checked against the project that is asked about, once the handler has read it.
    Endpoint("GET", "/usages", usages.project_usages, "placement:usages", versions=between("1.9", "1.37"),
             query=usages.QUERY, response=a.ProjectUsages),
    Endpoint("GET", "/usages", usages.project_usages, "placement:usages", versions=since("1.38"),
             query=usages.QUERY, response=a.UsagesByType),
    Endpoint("POST", "/reshaper", reshaper.reshape_providers, "placement:reshaper:reshape",
             versions=between("1.30", "1.33"), body=reshaper.Reshape130, status=204),
    Endpoint("POST", "/reshaper", reshaper.reshape_providers, "placement:reshaper:reshape",
             versions=between("1.34", "1.37"), body=reshaper.Reshape134, status=204),
    Endpoint("POST", "/reshaper", reshaper.reshape_providers, "placement:reshaper:reshape",
             versions=since("1.38"), body=reshaper.Reshape138, status=204),
)
# fmt: on

VERSIONS = PlacementVersions("placement", FIRST, LATEST)


def build_api(
    service: PlacementService,
    *,
    authenticate: Authenticator,
    prefix: str = "",
    public_url: str | None = None,
    policy_file: str | None = None,
) -> PlacementApi:
    """Return the Placement API over a service, as an ASGI application."""
    return PlacementApi(
        "placement",
        service,
        ENDPOINTS,
        "placement",
        VERSIONS,
        policies=Policies(DEFAULTS, policy_file),
        authenticate=authenticate,
        prefix=prefix,
        public_url=public_url,
    )

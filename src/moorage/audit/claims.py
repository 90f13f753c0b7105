"""What servers hold in placement, and placement's own sums."""

from moorage.audit.model import Invariant

INVARIANTS = (
    Invariant(
        name="claim.amounts",
        sentence="a server on a host holds exactly what its flavor needs",
        things="""
            SELECT s.id AS subject, s.host, s.needed, s.held, s.needed <> s.held AS broken
            FROM (
                SELECT s.id, s.host,
                       jsonb_strip_nulls(jsonb_build_object(
                           'VCPU', nullif(s.vcpus, 0), 'MEMORY_MB', nullif(s.memory_mb, 0),
                           'DISK_GB', nullif(s.disk_gb, 0))) AS needed,
                       coalesce(a.held, '{}') AS held
                FROM settled s
                LEFT JOIN LATERAL (
                    SELECT jsonb_object_agg(sums.resource_class, sums.used) AS held FROM (
                        SELECT resource_class, sum(used) AS used FROM allocations
                        WHERE consumer_id = s.id AND resource_class IN ('VCPU', 'MEMORY_MB', 'DISK_GB')
                        GROUP BY resource_class
                    ) sums
                ) a ON true
                WHERE s.host IS NOT NULL
                  AND s.vm_state NOT IN ('building', 'deleted', 'resized', 'shelved_offloaded')
            ) s
        """,
        message="on host {host} it needs {needed} and holds {held}",
    ),
    Invariant(
        # Source: the ownership table of claims; a sharing provider serves the trees of its aggregates.
        name="claim.host",
        sentence="what a server holds is on its host, or shared with it",
        things="""
            SELECT s.id AS subject, s.host, a.resource_class, p.name AS provider,
                   root.name <> s.host AND NOT EXISTS (
                       SELECT FROM provider_traits t
                       JOIN provider_aggregates mine ON mine.provider_id = t.provider_id
                       JOIN provider_aggregates theirs ON theirs.aggregate_id = mine.aggregate_id
                       JOIN resource_providers served ON served.id = theirs.provider_id
                       JOIN resource_providers host ON host.id = served.root_id
                       WHERE t.provider_id = p.id AND t.trait = 'MISC_SHARES_VIA_AGGREGATE' AND host.name = s.host
                   ) AS broken
            FROM settled s
            JOIN allocations a ON a.consumer_id = s.id
            JOIN resource_providers p ON p.id = a.provider_id
            JOIN resource_providers root ON root.id = p.root_id
            WHERE s.host IS NOT NULL AND s.vm_state <> 'resized'
        """,
        message="it is on host {host} but holds {resource_class} of provider {provider}",
    ),
    Invariant(
        name="claim.server",
        sentence="every claim of a server belongs to one that exists and is on a host",
        things="""
            SELECT c.id AS subject, coalesce(s.vm_state, 'gone') AS state, s.host,
                   s.id IS NULL OR (s.host IS NULL AND s.id IN (SELECT id FROM settled)) AS broken
            FROM consumers c LEFT JOIN live s ON s.id = c.id
            WHERE c.consumer_type = 'INSTANCE' AND EXISTS (SELECT FROM allocations a WHERE a.consumer_id = c.id)
        """,
        message="it holds a claim, but the server is {state}, on host {host}",
    ),
    Invariant(
        name="claim.owner",
        sentence="a server's claim is charged to the server's own project and user",
        things="""
            SELECT c.id AS subject, c.project_id, c.user_id, s.project_id AS owner_project, s.user_id AS owner_user,
                   (c.project_id, c.user_id) <> (s.project_id, s.user_id) AS broken
            FROM consumers c JOIN live s ON s.id = c.id
        """,
        message="charged to {project_id}/{user_id}, it belongs to {owner_project}/{owner_user}",
    ),
    Invariant(
        name="consumer.holds",
        sentence="a consumer exists while it holds something",
        things="""
            SELECT c.id AS subject, c.consumer_type,
                   NOT EXISTS (SELECT FROM allocations a WHERE a.consumer_id = c.id) AS broken
            FROM consumers c
        """,
        message="{consumer_type} consumer without any allocation",
    ),
    Invariant(
        name="inventory.used",
        sentence="the usage kept of an inventory is the sum of its allocations",
        things="""
            SELECT i.provider_id || ' ' || i.resource_class AS subject, p.name AS provider, i.used,
                   coalesce(a.held, 0) AS held, i.used <> coalesce(a.held, 0) AS broken
            FROM inventories i
            LEFT JOIN resource_providers p ON p.id = i.provider_id
            LEFT JOIN (
                SELECT provider_id, resource_class, sum(used) AS held FROM allocations GROUP BY 1, 2
            ) a ON a.provider_id = i.provider_id AND a.resource_class = i.resource_class
        """,
        message="provider {provider}: {used} are counted as used, {held} are allocated",
    ),
    Invariant(
        name="inventory.capacity",
        sentence="no more is allocated of an inventory than there is",
        things="""
            SELECT i.provider_id || ' ' || i.resource_class AS subject, p.name AS provider, i.used,
                   floor((i.total - i.reserved) * i.allocation_ratio) AS capacity,
                   i.used > (i.total - i.reserved) * i.allocation_ratio AS broken
            FROM inventories i LEFT JOIN resource_providers p ON p.id = i.provider_id
        """,
        message="provider {provider}: {used} of {capacity} are used",
    ),
    Invariant(
        name="provider.tree",
        sentence="every provider knows the root of its tree",
        things="""
            SELECT p.id AS subject, p.name, p.root_id, coalesce(parent.root_id, p.id) AS true_root,
                   p.root_id <> CASE WHEN p.parent_id IS NULL THEN p.id ELSE parent.root_id END
                   OR root.parent_id IS NOT NULL AS broken
            FROM resource_providers p
            LEFT JOIN resource_providers parent ON parent.id = p.parent_id
            LEFT JOIN resource_providers root ON root.id = p.root_id
        """,
        message="provider {name} has root {root_id}; by its parent it is {true_root}",
    ),
    Invariant(
        name="provider.host",
        sentence="every host that has reported is a root provider of its name",
        things="""
            SELECT h.name AS subject, NOT EXISTS (
                       SELECT FROM resource_providers p WHERE p.name = h.name AND p.parent_id IS NULL
                   ) AS broken
            FROM hosts h WHERE h.facts IS NOT NULL
        """,
        message="placement has no root provider of this name",
    ),
)

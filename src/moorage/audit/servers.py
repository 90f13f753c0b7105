"""Servers by themselves, and the sums kept of them."""

from moorage.audit.model import Invariant

INVARIANTS = (
    Invariant(
        name="server.task",
        sentence="a server that is being built or worked on has an open operation",
        things="""
            SELECT s.id AS subject, s.vm_state, s.task_state,
                   s.id IN (SELECT id FROM settled) AS broken
            FROM live s WHERE s.vm_state = 'building' OR s.task_state IS NOT NULL
        """,
        message="vm_state {vm_state}, task_state {task_state}, but no operation is open for it",
    ),
    Invariant(
        name="server.host",
        sentence="a server that was built is on a host that exists; one that was offloaded is on none",
        things="""
            SELECT s.id AS subject, s.vm_state, s.host,
                   CASE WHEN s.vm_state = 'shelved_offloaded' THEN s.host IS NOT NULL
                        WHEN s.host IS NULL THEN s.vm_state <> 'error'
                        ELSE NOT EXISTS (SELECT FROM hosts h WHERE h.name = s.host) END AS broken
            FROM settled s WHERE s.vm_state NOT IN ('building', 'deleted')
        """,
        message="vm_state {vm_state}, host {host}",
    ),
    Invariant(
        name="server.deleted",
        sentence="a deleted server is marked in every way, and nothing is done to it any more",
        things="""
            SELECT s.id AS subject, s.vm_state, s.task_state, s.deleted_at, o.id AS operation,
                   (s.vm_state = 'deleted') <> (s.deleted_at IS NOT NULL)
                   OR s.task_state IS NOT NULL OR o.id IS NOT NULL AS broken
            FROM servers s
            LEFT JOIN LATERAL (
                SELECT o.id FROM open_operations o, parameters
                WHERE o.subject = 'server:' || s.id AND s.deleted_at <= now() - grace LIMIT 1
            ) o ON true
            WHERE s.deleted_at IS NOT NULL OR s.vm_state = 'deleted'
        """,
        message=(
            "vm_state {vm_state}, task_state {task_state}, deleted at {deleted_at}, open operation {operation}"
        ),
    ),
    Invariant(
        name="server.flavor",
        sentence="the sizes that a server is counted with are those of its flavor",
        things="""
            SELECT s.id AS subject, s.counted, s.flavor, s.counted <> s.flavor AS broken
            FROM (
                SELECT id, jsonb_build_object('vcpus', vcpus, 'memory_mb', memory_mb, 'disk_gb', disk_gb) AS counted,
                       jsonb_build_object(
                           'vcpus', CAST(flavor->>'vcpus' AS bigint),
                           'memory_mb', CAST(flavor->>'ram' AS bigint),
                           'disk_gb', CAST(flavor->>'disk' AS bigint)
                               + coalesce(CAST(flavor->>'ephemeral' AS bigint), 0)
                               + coalesce(CAST(flavor->>'swap' AS bigint) + 1023, 0) / 1024
                       ) AS flavor
                FROM live
            ) s
        """,
        message="counted as {counted}, by its flavor {flavor}",
    ),
    Invariant(
        name="quota.usage",
        sentence="what a project is counted to use is the sum of its servers",
        things="""
            SELECT coalesce(q.project_id, s.project_id) AS subject,
                   coalesce(q.used, '[0, 0, 0]') AS counted, coalesce(s.used, '[0, 0, 0]') AS servers,
                   coalesce(q.used, '[0, 0, 0]') <> coalesce(s.used, '[0, 0, 0]') AS broken
            FROM (SELECT project_id, jsonb_build_array(instances, cores, ram) AS used FROM quota_usages) q
            FULL JOIN (
                SELECT project_id, jsonb_build_array(count(*), sum(vcpus), sum(memory_mb)) AS used
                FROM live GROUP BY project_id
            ) s ON s.project_id = q.project_id
        """,
        message="counted [instances, cores, MiB] are {counted}, its servers make {servers}",
    ),
)

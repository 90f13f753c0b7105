"""What hosts say of their guests. Only what a host has said since the server last changed is held against it."""

from moorage.audit.model import Invariant

INVARIANTS = (
    Invariant(
        # A host that was down when its server was deleted still has the guest until it gets to the command.
        name="guest.server",
        sentence="every guest on a host is a server that belongs there",
        things="""
            SELECT g.guest->>'server_id' AS subject, h.name AS host, s.host AS server_host, s.vm_state,
                   s.id IS NULL
                   OR (
                       (s.deleted_at IS NOT NULL OR s.host IS DISTINCT FROM h.name)
                       AND coalesce(s.deleted_at, s.updated_at, s.created_at) <= h.knows
                       AND NOT EXISTS (SELECT FROM open_operations o WHERE o.subject = 'server:' || s.id)
                       AND NOT EXISTS (
                           SELECT FROM operations o JOIN commands c ON c.operation = o.id
                           WHERE o.subject = 'server:' || s.id AND c.host = h.name AND c.kind = 'guest.destroy'
                             AND (c.finished_at IS NULL OR c.finished_at > h.knows)
                       )
                   ) AS broken
            FROM hosts_heard h
            CROSS JOIN LATERAL jsonb_array_elements(h.guests) AS g(guest)
            LEFT JOIN servers s ON s.id = g.guest->>'server_id'
        """,
        message="host {host} has this guest; the server's host is {server_host}, its vm_state {vm_state}",
    ),
    Invariant(
        name="guest.power",
        sentence="hosts run the guests of their ACTIVE servers, and of no SHUTOFF one",
        things="""
            SELECT s.id AS subject, s.host, s.vm_state, coalesce(g.guest->>'power_state', 'missing') AS power_state,
                   s.changed_at <= h.knows
                   AND (s.vm_state = 'active') <> (coalesce(g.guest->>'power_state', 'missing') = 'running') AS broken
            FROM settled s JOIN hosts_heard h ON h.name = s.host
            LEFT JOIN LATERAL (
                SELECT guest FROM jsonb_array_elements(h.guests) AS e(guest) WHERE guest->>'server_id' = s.id LIMIT 1
            ) g ON true
            WHERE s.vm_state IN ('active', 'stopped') AND s.task_state IS NULL
        """,
        message="host {host} says the guest is {power_state}; the server's vm_state is {vm_state}",
    ),
)

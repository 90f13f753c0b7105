"""Operations: whoever waits is woken, whoever is done has let go, and the log says so."""

from moorage.audit.model import Invariant

INVARIANTS = (
    Invariant(
        name="operation.wake",
        sentence="an operation that waits has a time at which it looks again",
        things="""
            SELECT o.id AS subject, o.kind, o.step, o.wake_at IS NULL AS broken
            FROM operations o WHERE o.state = 'waiting'
        """,
        message="{kind} waits in step {step} with no time to wake",
    ),
    Invariant(
        name="operation.lease",
        sentence="an operation that runs has an owner and a lease",
        things="""
            SELECT o.id AS subject, o.kind, o.owner, o.lease_until,
                   o.owner IS NULL OR o.lease_until IS NULL AS broken
            FROM operations o WHERE o.state = 'running'
        """,
        message="{kind} runs for owner {owner} with a lease until {lease_until}",
    ),
    Invariant(
        # The lease of the last round may still be written there; nobody may hold it any longer.
        name="operation.finished",
        sentence="an operation that has ended waits for no host, and nobody renews its lease",
        things="""
            SELECT o.id AS subject, o.kind, o.state, o.sent, o.lease_until,
                   o.sent OR coalesce(o.lease_until > coalesce(o.updated_at, o.created_at) + interval '5 minutes', false)
                   AS broken
            FROM operations o WHERE o.state IN ('done', 'failed', 'cancelled', 'abandoned')
        """,
        message="{kind} is {state}; it waits for a host: {sent}, its lease runs until {lease_until}",
    ),
    Invariant(
        name="operation.turn",
        sentence="one operation at a time works on a subject",
        things="""
            SELECT o.subject, count(*) AS at_once, jsonb_agg(o.id) AS operations, count(*) > 1 AS broken
            FROM operations o WHERE o.state IN ('running', 'waiting', 'stuck') GROUP BY o.subject
        """,
        message="{at_once} operations have begun and not ended: {operations}",
    ),
    Invariant(
        name="operation.command",
        sentence="an operation that waits for a host has a command there, and hears its result",
        things="""
            SELECT o.id AS subject, o.kind, o.step, o.data->>'_command' AS command, c.finished_at,
                   c.id IS NULL
                   OR (o.state = 'waiting' AND o.inbox IS NULL AND c.finished_at <= now() - grace) AS broken
            FROM parameters, open_operations o
            LEFT JOIN commands c ON c.id = o.data->>'_command' AND c.operation = o.id
            WHERE o.sent
        """,
        message="{kind}, step {step}: command {command}, which ended at {finished_at} and was not heard of",
    ),
    Invariant(
        name="operation.log",
        sentence="an operation that is done has done all it began, one that failed has undone all or says what it left",
        things="""
            SELECT o.id || ' ' || last.step AS subject, o.kind, o.state, last.step, last.events,
                   CASE WHEN o.state = 'done'
                        THEN NOT last.events ? 'succeeded' OR last.events ?| ARRAY['failed', 'undo_started', 'undone']
                        WHEN o.state = 'failed' THEN NOT last.events ? 'undone'
                        ELSE NOT last.events ?| ARRAY['undone', 'abandoned'] END AS broken
            FROM operations o
            JOIN (
                SELECT DISTINCT ON (operation, step) operation, step, jsonb_agg(event) AS events
                FROM operation_steps GROUP BY operation, step, round ORDER BY operation, step, round DESC
            ) last ON last.operation = o.id
            WHERE o.state IN ('done', 'failed', 'cancelled', 'abandoned')
        """,
        message="{kind} is {state}, but of step {step} the log has {events}",
    ),
    Invariant(
        name="operation.subject",
        sentence="an open operation on a server has one",
        things="""
            SELECT o.id AS subject, o.kind, o.subject AS of,
                   NOT EXISTS (SELECT FROM servers s WHERE o.subject = 'server:' || s.id) AS broken
            FROM open_operations o WHERE starts_with(o.subject, 'server:')
        """,
        message="{kind} is open for {of}, which is not there",
    ),
    Invariant(
        name="operation.stuck",
        sentence="a server whose operation is stuck is in ERROR",
        things="""
            SELECT o.id AS subject, o.kind, o.subject AS of, s.vm_state, s.vm_state <> 'error' AS broken
            FROM operations o JOIN live s ON o.subject = 'server:' || s.id
            WHERE o.state = 'stuck'
        """,
        message="{kind} is stuck, and {of} is {vm_state}",
    ),
    Invariant(
        # A server that was changed since has the word of whoever changed it.
        name="operation.abandoned",
        sentence="an operation that was abandoned says what it left, and its server is in ERROR",
        things="""
            SELECT o.id AS subject, o.kind, o.subject AS of, s.vm_state,
                   NOT coalesce(o.error ? 'left', false)
                   OR coalesce(s.vm_state <> 'error' AND s.changed_at <= o.updated_at, false) AS broken
            FROM operations o LEFT JOIN live s ON o.subject = 'server:' || s.id
            WHERE o.state = 'abandoned'
        """,
        message="{kind} was abandoned; {of} is {vm_state}",
    ),
    Invariant(
        # Questions that a request waits for (call:...) have no operation.
        name="command.operation",
        sentence="a command that a host has still to do comes from an operation that exists",
        things="""
            SELECT c.id AS subject, c.kind, c.host, c.operation,
                   NOT EXISTS (SELECT FROM operations o WHERE o.id = c.operation) AS broken
            FROM commands c WHERE c.finished_at IS NULL AND NOT starts_with(c.operation, 'call:')
        """,
        message="{kind} for host {host}: there is no operation {operation}",
    ),
)

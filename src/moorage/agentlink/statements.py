"""Every statement of this package, compiled once."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import insert

from moorage.agentlink.model import EndedCommand, Host, HostCertificate, Known, QueuedCommand, Reported
from moorage.agentlink.tables import commands, enrollment_tokens, host_certificates, hosts
from moorage.store.schema import Json, Timestamp
from moorage.store.statement import Statement, text_param, texts_param
from moorage.wire.coding import QUESTIONS

_now = sa.func.now()


def _param(name: str, type_: sa.types.TypeEngine[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=type_)


_hash = _param("hash", sa.LargeBinary())
_key = _param("key", sa.LargeBinary())
_queued = [commands.c[name] for name in QueuedCommand.__struct_fields__]

# --- the queue -------------------------------------------------------------------------------------------------

_ENQUEUE = insert(commands).values(
    id=text_param("id"),
    host=text_param("host"),
    operation=text_param("operation"),
    step=text_param("step"),
    kind=text_param("kind"),
    fence=_param("fence", sa.BigInteger()),
    payload=_param("payload", Json()),
    deadline=_param("deadline", Timestamp),
    request_id=text_param("request_id"),
    delivered_at=sa.case((_param("local", sa.Boolean()), _now)),
)
_unfinished = commands.c.finished_at.is_(None)
_guest = _param("payload", Json())["server_id"].astext
_questions: list[sa.ColumnElement[Any]] = [sa.literal_column(f"'{kind}'") for kind in sorted(QUESTIONS)]
_same_key = sa.and_(
    commands.c.operation == text_param("operation"),
    commands.c.step == text_param("step"),
    commands.c.kind == text_param("kind"),
    commands.c.fence == _param("fence", sa.BigInteger()),
)
# One operation at a time has a guest: who sends a command for it has taken over from whoever sent an earlier one that
# has no result yet. That one must not reach the host after this one; questions change nothing and do not count.
_SUPERSEDED = (
    sa.update(commands)
    .where(
        commands.c.host == text_param("host"),
        _unfinished,
        commands.c.payload["server_id"].astext == _guest,
        commands.c.kind.not_in(_questions),
        text_param("kind").not_in(_questions),
        sa.not_(_same_key),
    )
    .values(finished_at=_now, outcome="superseded", payload=sa.cast(sa.literal_column("'{}'"), Json))
    .returning(commands.c.id)
    .cte("superseded")
)
# The same key again is the same command: it is asked for again, and the agent's journal gives the same result.
# A command for a host that polls elsewhere wakes the other processes in the same statement.
ENQUEUE: Statement[tuple[str, int]] = Statement(
    _ENQUEUE.on_conflict_do_update(
        index_elements=["operation", "step", "kind", "fence", "host"],
        set_={
            "payload": _ENQUEUE.excluded.payload,
            "delivered_at": _ENQUEUE.excluded.delivered_at,
            "finished_at": None,
            "outcome": None,
            "error": None,
        },
    )
    .returning(
        commands.c.id,
        commands.c.seq,
        sa.case(
            (sa.not_(_param("local", sa.Boolean())), sa.cast(sa.func.pg_notify("commands", ""), sa.Text))
        ),
    )
    .add_cte(_SUPERSEDED)
)

DELIVER_ALL = Statement(
    sa.update(commands)
    .where(commands.c.host == text_param("host"), _unfinished)
    .values(delivered_at=_now)
    .returning(*_queued),
    row=QueuedCommand,
)
_new = (
    sa.select(commands.c.id)
    .where(_unfinished, commands.c.delivered_at.is_(None), commands.c.host == sa.any_(texts_param("hosts")))
    .with_for_update(skip_locked=True)
)
DELIVER_NEW = Statement(
    sa.update(commands).where(commands.c.id.in_(_new)).values(delivered_at=_now).returning(*_queued),
    row=QueuedCommand,
)
_stale = sa.func.make_interval(0, 0, 0, 0, 0, 0, _param("seconds", sa.Double()))
DELIVER_AGAIN = Statement(
    sa.update(commands)
    .where(
        _unfinished,
        commands.c.delivered_at < _now - _stale,
        commands.c.host == sa.any_(texts_param("hosts")),
    )
    .values(delivered_at=_now)
    .returning(*_queued),
    row=QueuedCommand,
)
GIVE_BACK: Statement[object] = Statement(
    sa.update(commands)
    .where(_unfinished, commands.c.id == sa.any_(texts_param("ids")))
    .values(delivered_at=None)
)

# One statement for the whole batch; rows that were finished before, or are another host's, do not come back.
_batch = (
    sa.func.unnest(
        texts_param("ids"),
        texts_param("hosts"),
        texts_param("outcomes"),
        sa.bindparam("errors", type_=postgresql.ARRAY(Json)),
    )
    .table_valued("id", "host", "outcome", "error", name="batch")
    .render_derived()
)
FINISH = Statement(
    sa.update(commands)
    .where(commands.c.id == _batch.c.id, commands.c.host == _batch.c.host, _unfinished)
    .values(
        finished_at=_now,
        outcome=_batch.c.outcome,
        error=sa.cast(_batch.c.error, Json),
        payload=sa.cast(sa.literal_column("'{}'"), Json),
    )
    .returning(*(commands.c[name] for name in EndedCommand.__struct_fields__)),
    row=EndedCommand,
)
_pairs = sa.func.unnest(texts_param("ids"), texts_param("hosts")).table_valued("id", "host", name="pairs")
_own = _pairs.render_derived()
OWN: Statement[tuple[str]] = Statement(
    sa.select(commands.c.id).join(_own, sa.and_(_own.c.id == commands.c.id, _own.c.host == commands.c.host))
)
_old = (
    sa.func.unnest(
        texts_param("ids"),
        texts_param("hosts"),
        sa.bindparam("numbers", type_=postgresql.ARRAY(sa.BigInteger)),
    )
    .table_valued("id", "host", "number", name="old")
    .render_derived()
)
QUEUE_AGAIN: Statement[object] = Statement(
    sa.update(commands)
    .where(commands.c.id == _old.c.id, commands.c.host == _old.c.host, _unfinished)
    .values(seq=sa.func.greatest(commands.c.seq, _old.c.number + 1), delivered_at=None)
    .returning(sa.cast(sa.func.pg_notify("commands", ""), sa.Text))
)
PRUNE: Statement[object] = Statement(
    sa.delete(commands).where(commands.c.finished_at < _param("before", Timestamp))
)

# --- the registry ----------------------------------------------------------------------------------------------

HOSTS = Statement(sa.select(hosts).order_by(hosts.c.name), row=Host)
HOST = Statement(sa.select(hosts).where(hosts.c.name == text_param("name")), row=Host)
LOCK_HOST: Statement[tuple[str]] = Statement(
    sa.select(hosts.c.id).where(hosts.c.name == text_param("name")).with_for_update()
)
ADD_HOST: Statement[tuple[str]] = Statement(
    insert(hosts)
    .values(
        id=text_param("id"),
        name=text_param("name"),
        protocol=_param("protocol", sa.Integer()),
        agent_version=text_param("agent_version"),
    )
    .on_conflict_do_nothing()
    .returning(hosts.c.id)
)
SET_DISABLED = Statement(
    sa.update(hosts)
    .where(hosts.c.name == text_param("name"))
    .values(disabled=_param("disabled", sa.Boolean()), disabled_reason=text_param("reason"), updated_at=_now)
    .returning(hosts),
    row=Host,
)
# UPDATE hosts .. FROM (SELECT .. FROM hosts WHERE name = .. FOR UPDATE) before: the row is what a report is compared
# with, as the one before may have come through another process.
_before = (
    sa.select(hosts.c.name, hosts.c.facts, hosts.c.guests)
    .where(hosts.c.name == text_param("name"))
    .with_for_update()
    .subquery("before")
)
REPORT = Statement(
    sa.update(hosts)
    .where(hosts.c.name == _before.c.name)
    .values(
        facts=_param("facts", Json()),
        guests=_param("guests", Json()),
        hypervisor_type=text_param("hypervisor_type"),
        protocol=_param("protocol", sa.Integer()),
        agent_version=text_param("agent_version"),
        last_seen=_now,
        updated_at=_now,
    )
    .returning(
        hosts.c.updated_at.label("at"),
        _before.c.facts.is_distinct_from(hosts.c.facts).label("new_facts"),
        _before.c.guests.label("guests_before"),
    ),
    row=Reported,
)
# Only rows that are as this process left them: what it has not written, it cannot repeat.
_kept = (
    sa.func.unnest(texts_param("names"), sa.bindparam("ats", type_=postgresql.ARRAY(Timestamp)))
    .table_valued("name", "at")
    .render_derived(name="kept")
)
TOUCH: Statement[tuple[str]] = Statement(
    sa.update(hosts)
    .where(hosts.c.name == _kept.c.name, hosts.c.updated_at == _kept.c.at)
    .values(last_seen=_now)
    .returning(hosts.c.name)
)

# --- what other domains join with ------------------------------------------------------------------------------

_guest = (
    sa.func.jsonb_to_recordset(hosts.c.guests)
    .table_valued(sa.column("server_id", sa.Text), sa.column("power_state", sa.Text))
    .render_derived(name="guest", with_types=True)
)
GUESTS = sa.select(hosts.c.name.label("host"), _guest.c.server_id, _guest.c.power_state).select_from(
    hosts.join(_guest, sa.true())
)
"""Every guest of every host's last report."""
LAST_REPORTS = sa.select(hosts.c.name.label("host"), hosts.c.last_seen).where(hosts.c.facts.is_not(None))
"""When each host was last heard of, with that report."""

# --- tickets and certificates ------------------------------------------------------------------------------------

ADD_TOKEN: Statement[object] = Statement(
    sa.insert(enrollment_tokens).values(
        hash=_hash,
        host=text_param("host"),
        uses_left=_param("uses", sa.Integer()),
        expires_at=_param("expires_at", Timestamp),
    )
)
USE_TOKEN = Statement[tuple[str | None]](
    sa.update(enrollment_tokens)
    .where(
        enrollment_tokens.c.hash == _hash,
        enrollment_tokens.c.uses_left > 0,
        enrollment_tokens.c.expires_at > _now,
        sa.or_(enrollment_tokens.c.host.is_(None), enrollment_tokens.c.host == text_param("name")),
    )
    .values(uses_left=enrollment_tokens.c.uses_left - 1)
    .returning(enrollment_tokens.c.host)
)
PRUNE_TOKENS: Statement[object] = Statement(
    sa.delete(enrollment_tokens).where(enrollment_tokens.c.expires_at < _now)
)
_fingerprint = _param("fingerprint", sa.LargeBinary())
ADD_CERTIFICATE: Statement[object] = Statement(
    sa.insert(host_certificates).values(
        fingerprint=_fingerprint,
        key=_key,
        host=text_param("host"),
        certificate=text_param("certificate"),
        expires_at=_param("expires_at", Timestamp),
    )
)
CERTIFICATE = Statement(
    sa.select(host_certificates.c.host, host_certificates.c.expires_at).where(
        host_certificates.c.fingerprint == _fingerprint
    ),
    row=Known,
)
CERTIFICATES_THERE: Statement[tuple[bytes]] = Statement(
    sa.select(host_certificates.c.fingerprint).where(
        host_certificates.c.fingerprint == sa.any_(_param("fingerprints", postgresql.ARRAY(sa.LargeBinary)))
    )
)
CERTIFICATES_OF = Statement(
    sa.select(host_certificates.c.fingerprint, host_certificates.c.created_at, host_certificates.c.expires_at)
    .where(host_certificates.c.host == text_param("host"))
    .order_by(host_certificates.c.created_at),
    row=HostCertificate,
)
CERTIFICATE_OF_KEY: Statement[tuple[str, str]] = Statement(
    sa.select(hosts.c.id, host_certificates.c.certificate)
    .join(hosts, hosts.c.name == host_certificates.c.host)
    .where(
        host_certificates.c.key == _key,
        host_certificates.c.host == text_param("host"),
        host_certificates.c.expires_at > _now,
    )
)
END_CERTIFICATES: Statement[object] = Statement(
    sa.delete(host_certificates).where(
        host_certificates.c.host == text_param("host"),
        host_certificates.c.fingerprint != _param("but", sa.LargeBinary()),
    )
)
PRUNE_CERTIFICATES: Statement[object] = Statement(
    sa.delete(host_certificates).where(host_certificates.c.expires_at < _now)
)

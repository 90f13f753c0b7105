"""The table of the agents' API, and its handlers."""

from typing import Annotated

import msgspec

from moorage.agentlink.http.auth import HostAuthenticator
from moorage.agentlink.http.policies import DEFAULTS, HOST
from moorage.agentlink.service import AgentLink
from moorage.api.app import Api
from moorage.api.call import Call, Reply
from moorage.api.endpoint import Endpoint
from moorage.api.policy import Policies
from moorage.wire.messages import (
    Commands,
    EnrollReply,
    EnrollRequest,
    GuestList,
    HostReport,
    RenewReply,
    RenewRequest,
    ReportReply,
    Uplink,
    Verdicts,
)

PREFIX = "/agent/v1"


class PollQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``wait``: seconds to hold the poll open; ``after``: the highest seq of the commands that came last, 0 for all
    unfinished.
    """

    wait: Annotated[int, msgspec.Meta(ge=0, le=300)] = 30
    after: Annotated[int, msgspec.Meta(ge=0)] = 0


async def enroll(call: Call[AgentLink]) -> EnrollReply:
    """Trade a one-time token for a certificate."""
    return await call.app.enroll(call.body)


async def renew(call: Call[AgentLink]) -> RenewReply:
    """A new certificate for the one that was shown."""
    return await call.app.renew(_host(call), _shown(call), call.body.csr)


async def judge(call: Call[AgentLink]) -> Verdicts:
    """What the host may still run of what it has."""
    return await call.app.verdicts(_host(call), call.body.guests)


async def poll(call: Call[AgentLink]) -> Reply:
    """The host's next commands."""
    body = await call.app.poll(_host(call), after=call.query.after, wait=call.query.wait)
    await call.app.certificates.still(_shown(call))
    return Reply(body)


async def record(call: Call[AgentLink]) -> None:
    """Results and events; 204 once they are recorded."""
    await call.app.record(_host(call), call.body)


async def report(call: Call[AgentLink]) -> ReportReply:
    """The heartbeat."""
    await call.app.report(_host(call), call.body)
    return ReportReply(renew=call.app.certificates.due(_shown(call)))


def _host(call: Call[AgentLink]) -> str:
    host = call.context.host
    assert host is not None
    return host


def _shown(call: Call[AgentLink]) -> bytes:
    certificate = call.context.certificate
    assert certificate is not None
    return certificate


ENDPOINTS = (
    Endpoint("POST", "/enroll", enroll, body=EnrollRequest, status=201, response=EnrollReply),
    Endpoint("POST", "/renew", renew, HOST, body=RenewRequest, response=RenewReply),
    Endpoint("POST", "/guests", judge, HOST, body=GuestList, response=Verdicts),
    Endpoint("GET", "/commands", poll, HOST, query=PollQuery, response=Commands),
    Endpoint("POST", "/results", record, HOST, body=Uplink, status=204),
    Endpoint("POST", "/events", record, HOST, body=Uplink, status=204),
    Endpoint("POST", "/report", report, HOST, body=HostReport, response=ReportReply),
)


def agent_api(link: AgentLink) -> Api:
    """The API as an ASGI application, to be mounted at ``PREFIX``."""
    return Api(
        "agent",
        link,
        ENDPOINTS,
        "control",
        None,
        policies=Policies(DEFAULTS),
        authenticate=HostAuthenticator(link.certificates),
        prefix=PREFIX,
        max_body=16 << 20,
    )

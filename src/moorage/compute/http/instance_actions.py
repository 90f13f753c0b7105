"""/servers/{server_id}/os-instance-actions."""

from typing import Any

from moorage.api.endpoint import names
from moorage.api.paging import next_link
from moorage.compute import actions, servers
from moorage.compute.errors import InvalidField
from moorage.compute.http import values
from moorage.compute.http.values import ComputeCall
from moorage.compute.model import Action, ActionEvent
from moorage.compute.placements import host_alias
from moorage.compute.server_lists import moment
from moorage.core.errors import BadRequest, NotFound

QUERY = names(
    strict="2.58",
    later={"limit": "2.58", "marker": "2.58", "changes-since": "2.58", "changes-before": "2.66"},
)
_EVENTS = "os_compute_api:os-instance-actions:events"
_DETAILS = "os_compute_api:os-instance-actions:events:details"


async def index(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-instance-actions, newest first; from 2.21 on of a deleted server too, pages from 2.58 on."""
    filters = _filters(call)
    path = f"/servers/{call.path['server_id']}/os-instance-actions"
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"], deleted=call.version >= (2, 21))
        marker = filters.get("marker")
        if marker is not None and await actions.by_request(tx, server.id, marker) is None:
            raise BadRequest(f"Marker {marker} could not be found.", field="marker")
        found = await actions.of_server(tx, server.id, **filters)
    answer: dict[str, Any] = {"instanceActions": [_view(call, a) for a in found]}
    if call.version >= (2, 58) and found and len(found) == filters["limit"]:
        answer["links"] = [next_link(call.url(path), call.query, found[-1].request_id)]
    return answer


def _filters(call: ComputeCall) -> dict[str, Any]:
    if call.version < (2, 58):
        return {"limit": call.app.max_limit}
    for key, given in call.query.items():
        if len(given) > 1:
            raise InvalidField(
                f"Invalid input for query parameter {key}: it is given more than once.", field=key
            )
    since, before = values.last(call, "changes-since"), values.last(call, "changes-before")
    return {
        "limit": values.page_limit(call),
        "marker": values.last(call, "marker"),
        "since": None if since is None else moment(since, "changes-since"),
        "before": None if before is None else moment(before, "changes-before"),
    }


async def show(call: ComputeCall) -> dict[str, Any]:
    """GET …/os-instance-actions/{request_id}."""
    async with call.app.database.read() as tx:
        server = await servers.get(tx, call.context, call.path["server_id"], deleted=call.version >= (2, 21))
        found = await actions.by_request(tx, server.id, call.path["request_id"])
    if found is None:
        raise NotFound(f"Action {call.path['request_id']} not found for instance {server.id}")
    view = _view(call, found[0])
    if call.version >= (2, 51) or call.allowed(_EVENTS):
        view["events"] = [_event(call, server.project_id, e) for e in found[1]]
    return {"instanceAction": view}


def _view(call: ComputeCall, action: Action) -> dict[str, Any]:
    view: dict[str, Any] = {
        "action": action.action,
        "instance_uuid": action.server_id,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": values.time_without_zone(action.start_time),
        "message": action.message,
    }
    if call.version >= (2, 58):
        view["updated_at"] = values.time_without_zone(action.updated_at)
    return view


def _event(call: ComputeCall, project_id: str, event: ActionEvent) -> dict[str, Any]:
    view: dict[str, Any] = {
        "event": event.event,
        "start_time": values.time_without_zone(event.start_time),
        "finish_time": values.time_without_zone(event.finish_time),
        "result": event.result,
    }
    administrator = call.allowed(_EVENTS)
    if administrator:
        view["traceback"] = None
    if call.version >= (2, 62):
        view["hostId"] = host_alias(project_id, event.host) if event.host else ""
        if administrator and event.host:
            view["host"] = event.host
    if call.version >= (2, 84) and call.allowed(_DETAILS):
        view["details"] = event.details
    return view

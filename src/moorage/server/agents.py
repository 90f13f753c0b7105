"""The agents' side of a process: their listener's certificate, and the routes that a host can reach."""

import asyncio
from pathlib import Path
from typing import Any

from oslo_config import cfg
from starlette.routing import Mount, Route, Router

from moorage.agentlink.authority import Authority, AuthorityUnusable
from moorage.agentlink.http.routes import agent_api
from moorage.agentlink.service import AgentLink
from moorage.server.images import ImageProxy

_DAY = 86_400.0


def authority_of(conf: cfg.ConfigOpts) -> Authority:
    """The authority that the configuration names, or the state folder's. Raises AuthorityUnusable."""
    key, certificates = conf.agent_ca_key, conf.agent_ca_certs
    if bool(key) != bool(certificates):
        raise AuthorityUnusable("agent_ca_key and agent_ca_certs belong together: set both or none")
    if key:
        return Authority.read(Path(key), Path(certificates))
    return Authority.kept(Path(conf.state))


class AgentsTls:
    """The TLS context of the agents' listeners, with a certificate that is made anew every day."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.context = authority.server_context()

    async def run(self) -> None:
        """Keep it fresh until cancelled."""
        while True:
            await asyncio.sleep(_DAY)
            self._authority.renew_server(self.context)


def agent_app(link: AgentLink, images: ImageProxy, image_path: str) -> Router:
    """Everything that a host can reach, as one application."""
    return Router(
        [
            Route(image_path + "/{image_id}", images.serve, methods=["GET"]),
            Mount("/", _Exact(agent_api(link))),
        ]
    )


class _Exact:
    """An application that sees the whole path, not what a mount left of it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app({**scope, "root_path": ""}, receive, send)

"""The Networking API v2.0."""

from moorage.network.http.common import NetworkApp
from moorage.network.http.routes import ENDPOINTS, network_api

__all__ = ["ENDPOINTS", "NetworkApp", "network_api"]

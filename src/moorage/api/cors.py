"""Requests from web pages of other origins (CORS), where an operator allows them."""

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response


class Cors(CORSMiddleware):
    """Answers a preflight as oslo.middleware does: 200 in any case, and what is allowed only where all is."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer the question of a browser whether a page may send a request."""
        answer = super().preflight_response(request_headers)
        if answer.status_code != 200:
            return PlainTextResponse("", headers={"Vary": "Origin"})
        asked = request_headers.get("access-control-request-headers")
        if asked is not None:
            answer.headers["Access-Control-Allow-Headers"] = asked
        return answer

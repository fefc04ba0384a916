"""From where the face may be called: which hosts it answers to, and pages of which origins may call it.

A page that has its own name point at a server in the house (DNS rebinding) comes with its own Host and Origin; neither is
served. Cookies are not read, so a foreign page has nothing to borrow.
"""

from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Send

from deedbox.mcp.deps import LOOPBACK_HOSTS, McpDeps

_SENT = (
    "Authorization, Content-Type, Accept, Idempotency-Key, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name,"
    " Deedbox-Caller-Run, Deedbox-On-Behalf-Of"
)
_READ = "Mcp-Session-Id, WWW-Authenticate"
_KEEP_S = 600


class Doors:
    """Says who is let in by where the request was sent."""

    def __init__(self, deps: McpDeps) -> None:
        """The public URL and loopback are served without being named."""
        public = urlsplit(deps.public_url)
        self._hosts = frozenset({*LOOPBACK_HOSTS, public.netloc, *deps.hosts})
        loopback = {f"{scheme}://{host}" for scheme in ("http", "https") for host in LOOPBACK_HOSTS}
        self._origins = frozenset({*loopback, f"{public.scheme}://{public.netloc}", *deps.origins})

    def refusal(self, request: Request) -> Response | None:
        """The answer to a request for a host, or from an origin, that is not served; None for any other."""
        if not _listed(request.headers.get("host", ""), self._hosts):
            return Response("This host is not served: DEEDBOX_MCP_HOSTS names those that are.", 421)
        origin = request.headers.get("origin")
        if origin is not None and not _listed(origin, self._origins):
            return Response("Pages of this origin are not served: DEEDBOX_MCP_ORIGINS names those that are.", 403)
        return None

    def preflight(self, request: Request) -> Response:
        """What a page of an origin that is served is told before it calls."""
        del request
        sent = {
            "Access-Control-Allow-Methods": "POST, DELETE",
            "Access-Control-Allow-Headers": _SENT,
            "Access-Control-Max-Age": str(_KEEP_S),
        }
        return Response(status_code=204, headers=sent)

    def readable(self, request: Request, send: Send) -> Send:
        """A `send` whose answer the calling page may read; the origin has been found to be served."""
        origin = request.headers.get("origin")
        if origin is None:
            return send

        async def readably(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Access-Control-Allow-Origin"] = origin
                headers["Access-Control-Expose-Headers"] = _READ
                headers.add_vary_header("Origin")
            await send(message)

        return readably


def _listed(value: str, known: frozenset[str]) -> bool:
    """Whether a host or origin is among those known, where `:*` stands for any port."""
    if value in known:
        return True
    name, colon, port = value.rpartition(":")
    return bool(colon) and port.isdecimal() and f"{name}:*" in known

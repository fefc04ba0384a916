"""Where a request comes in at `/mcp`: whether it may, of which era it is, and who answers it."""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from mcp.server.connection import Connection
from mcp.server.runner import serve_one
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER, InboundLadderRejection, unsupported_protocol_version_rejection
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from deedbox.mcp import routing, wire
from deedbox.mcp.context import EXCHANGE, PRINCIPAL, REFUSED
from deedbox.mcp.deps import McpDeps
from deedbox.mcp.doors import Doors
from deedbox.mcp.exchange import Exchange
from deedbox.mcp.legacy import SESSION_HEADER, Known, Sessions
from deedbox.mcp.server import make_server
from deedbox.model.errors import CODES, DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.replies import Question
from deedbox.operate.views import AWAY

PATH = "/mcp"
_ARRIVES_WITHIN_S = 120.0
_ANSWER_WITHIN_S = 60.0
_REMEMBER_S = 600.0
_LOOK_UP_S = 0.5
_MOST_REMEMBERED = 1024
_TAKEN = ("POST", "DELETE")
_QUESTION = re.compile(r"[0-9a-f]{32}")
_STATIC = frozenset({"initialize", "ping", "server/discover", "tools/list", "resources/list", "resources/templates/list"})
"""What is answered without the database."""


class McpFace:
    """The face as an ASGI application, over the SDK's server; `server` may be given further handlers before it serves."""

    def __init__(self, deps: McpDeps) -> None:
        """Nothing is opened: the face lives as long as what it stands on."""
        self.deps = self._deps = deps
        self._doors = Doors(deps)
        self._sessions = Sessions(deps.keys)
        self._mirrored = routing.Mirrored(deps)
        self._seen: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._left: set[asyncio.Future[Principal | Response]] = set()
        self.server = make_server(deps)

    def route(self) -> Route:
        """The route to be served beside the others; its path is exact, so that no client is sent elsewhere."""
        return Route(PATH, self, methods=["GET", "POST", "DELETE", "OPTIONS"], name=PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        refused = self._doors.refusal(request)
        if refused is not None:
            await refused(scope, receive, send)
            return
        send = self._doors.readable(request, send)
        if request.method == "OPTIONS":
            await self._doors.preflight(request)(scope, receive, send)
            return
        if request.method not in _TAKEN:
            # Refused here and not by the route, so that a page may read the refusal.
            await Response(status_code=405, headers={"Allow": ", ".join((*_TAKEN, "OPTIONS"))})(scope, receive, send)
            return
        try:
            await self._answer(request, send)
        except ClientDisconnect:
            return

    async def _answer(self, request: Request, send: Send) -> None:
        scope, receive = request.scope, request.receive
        incoming, refusal = await self._message(request)
        # Whoever is not known is told so, and nothing of what was wrong with the message.
        principal = await self._principal(request, "" if incoming is None else incoming.method)
        if isinstance(principal, Response):
            await principal(scope, receive, send)
        elif refusal is not None:
            await refusal(scope, receive, send)
        elif incoming is None:
            # There is nothing to forget: what a session would hold is in its id.
            await Response(status_code=204)(scope, receive, send)
        else:
            scope[PRINCIPAL] = principal
            version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER)
            if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
                await self._modern(request, send, incoming, version)
            else:
                await self._legacy(request, send, incoming, version, principal)

    async def _soon(self, request: Request) -> Principal | Response | None:
        """Who asks; None where the store has fallen silent, and then the look-up's end is not waited for."""
        looking = asyncio.ensure_future(self._deps.who(request))
        await asyncio.wait({looking}, timeout=_LOOK_UP_S)
        if looking.done():
            return looking.result()
        self._left.add(looking)
        looking.add_done_callback(self._let_go)
        return None

    def _let_go(self, looking: "asyncio.Future[Principal | Response]") -> None:
        self._left.discard(looking)
        if not looking.cancelled():
            looking.exception()  # looked at, so that nobody reports it as forgotten

    async def _message(self, request: Request) -> tuple[wire.Incoming | None, Response | None]:
        """The message that was sent, or why it is none; a DELETE brings none."""
        if request.method == "DELETE":
            return None, None
        try:
            return wire.read_message(await self._body(request)), None
        except wire.WireError as error:
            return None, wire.json_response(wire.error_message(None, error.error), modern=True)
        except DeedboxError as error:
            return None, _plainly(error.code, error.detail)

    async def _body(self, request: Request) -> bytes:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != wire.JSON:
            raise DeedboxError("unsupported_media_type", "Send application/json.")
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_ARRIVES_WITHIN_S):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > self._deps.max_bytes:
                        raise DeedboxError("body_too_large", f"A body has at most {self._deps.max_bytes} bytes here.")
                    chunks.append(chunk)
        except TimeoutError as error:
            raise DeedboxError("invalid_json", f"The body did not arrive within {_ARRIVES_WITHIN_S:.0f} s.") from error
        return b"".join(chunks)

    async def _principal(self, request: Request, method: str) -> Principal | Response:
        """Who asks. Lists and what the server is are told while the store is away, to whoever it knew a while ago."""
        given = hashlib.sha256(
            "\n".join(request.headers.get(name, "") for name in ("authorization", "deedbox-on-behalf-of")).encode()
        ).digest()
        seen = self._seen.get(given) if method in _STATIC else None
        known = seen[1] if seen is not None and time.monotonic() - seen[0] < _REMEMBER_S else None
        try:
            found = await self._deps.who(request) if known is None else await self._soon(request) or known
        except AWAY:
            return known or _plainly("unavailable", CODES["unavailable"].title, {"Retry-After": "1"})
        if isinstance(found, Response):
            self._seen.pop(given, None)
            return found
        if found.form is not None:
            return _plainly("permission_denied", "A form key submits one action and opens nothing else.")
        self._seen[given] = (time.monotonic(), found)
        self._seen.move_to_end(given)
        while len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return found

    # The newer era ---------------------------------------------------------------------------------------------------------

    async def _modern(self, request: Request, send: Send, incoming: wire.Incoming, version: str) -> None:
        scope, receive = request.scope, request.receive
        if incoming.kind == "reply":
            error = ErrorData(code=INVALID_REQUEST, message="Nobody has asked anything.")
            await wire.json_response(wire.error_message(None, error), modern=True)(scope, receive, send)
            return
        if incoming.kind == "notification" or incoming.request_id is None:
            unsupported = unsupported_protocol_version_rejection(version)
            response = Response(status_code=202) if unsupported is None else _rejected(None, unsupported)
            await response(scope, receive, send)
            return
        verdict = routing.classified(request, incoming)
        if not isinstance(verdict, InboundLadderRejection):
            verdict = self._mirrored.refusal(request, incoming) or verdict
        if isinstance(verdict, InboundLadderRejection):
            await _rejected(incoming, verdict)(scope, receive, send)
            return
        exchange = self._exchange(request, incoming)
        if incoming.method == "subscriptions/listen" and not exchange.streams:
            await Response(status_code=406)(scope, receive, send)
            return
        connection = Connection.from_envelope(verdict.protocol_version, verdict.client_info, verdict.client_capabilities)
        await exchange.answer(self._serve(exchange, incoming, connection), send, modern=True)

    # The older era ---------------------------------------------------------------------------------------------------------

    async def _legacy(
        self, request: Request, send: Send, incoming: wire.Incoming, version: str | None, principal: Principal
    ) -> None:
        scope, receive = request.scope, request.receive
        if incoming.kind == "reply":
            await self._reply(principal, incoming)
        if incoming.kind != "request" or incoming.request_id is None:
            await Response(status_code=202)(scope, receive, send)
            return
        headers: dict[str, str] = {}
        if incoming.method == "initialize":
            known, session_id = self._sessions.open(principal, incoming.params)
            headers = {} if session_id is None else {SESSION_HEADER: session_id}
        else:
            known = self._sessions.read(principal, request.headers.get(SESSION_HEADER), version)
        exchange = self._exchange(request, incoming)
        if self._deps.hears is not None and known.capabilities is not None:
            exchange.ask = self._ask
        connection = _connection(known)
        await exchange.answer(self._serve(exchange, incoming, connection), send, modern=False, headers=headers)

    async def _reply(self, principal: Principal, incoming: wire.Incoming) -> None:
        """Hand an answer on to the process whose handler waits for it."""
        question_id = str(incoming.request_id)
        if self._deps.replies is not None and _QUESTION.fullmatch(question_id):
            answer = {name: incoming.body[name] for name in ("result", "error") if name in incoming.body}
            await self._deps.replies.give(principal, question_id, answer)

    async def _ask(
        self, exchange: Exchange, method: str, params: Mapping[str, Any] | None, within_s: float | None
    ) -> dict[str, Any]:
        question = Question(exchange.request.scope[PRINCIPAL])
        if self._deps.hears is None:
            raise RuntimeError("nobody hears answers")
        async with self._deps.hears.replies(question.hear):
            body = {"jsonrpc": "2.0", "id": question.question_id, "method": method}
            await exchange.say(body if params is None else {**body, "params": dict(params)})
            try:
                answer = await question.answer(within_s or _ANSWER_WITHIN_S)
            except TimeoutError as error:
                raise MCPError(INTERNAL_ERROR, "The client did not answer in time.") from error
        if "error" in answer:
            raise MCPError.from_error_data(ErrorData.model_validate(answer["error"]))
        result: dict[str, Any] = answer["result"]
        return result

    # Both ------------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _exchange(request: Request, incoming: wire.Incoming) -> Exchange:
        if incoming.request_id is None:
            raise RuntimeError("only a request is answered")
        exchange = Exchange(
            request,
            incoming.request_id,
            incoming.method,
            progress_token_from_params(incoming.params),
            streams=wire.accepts(request.headers.get("accept", ""), wire.SSE),
        )
        request.scope[EXCHANGE] = exchange
        return exchange

    async def _serve(self, exchange: Exchange, incoming: wire.Incoming, connection: Connection) -> dict[str, Any]:
        if incoming.refusal is not None and incoming.method != "tools/call":
            raise incoming.refusal
        exchange.request.scope[REFUSED] = incoming.refusal
        return await serve_one(
            self.server, exchange, incoming.method, incoming.params, connection=connection, lifespan_state={}
        )


def _connection(known: Known) -> Connection:
    client = known.client or {"name": "unknown", "version": "0"}
    return Connection.from_envelope(known.version, client, known.capabilities)


def _rejected(incoming: wire.Incoming | None, rejection: InboundLadderRejection) -> Response:
    error = ErrorData(code=rejection.code, message=rejection.message, data=rejection.data)
    return wire.json_response(wire.error_message(None if incoming is None else incoming.request_id, error), modern=True)


def _plainly(code: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal before there is a message to answer, with the status of its code."""
    error = ErrorData(code=INVALID_REQUEST, message=detail, data={"error_code": code})
    response = wire.json_response(wire.error_message(None, error), modern=True, headers=headers)
    response.status_code = CODES[code].status
    return response

"""One path with all its methods, as an ASGI application: who asks, what became of it, and nothing left unread.

Whatever a handler raises becomes a problem. What a handler notes in the scope is for the log (deedbox.http.entry).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from deedbox import telemetry
from deedbox.access import resolve_acting
from deedbox.http.deps import HttpDeps
from deedbox.http.headers import header_values, one_header
from deedbox.http.problems import internal, problem, unavailable
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal, Verb
from deedbox.model.permissions import ROUTES
from deedbox.operate.views import AWAY

Handler = Callable[[Request], Awaitable[Response]]
KnownHandler = Callable[[Request, Principal], Awaitable[Response]]
Answer = TypeVar("Answer")

_DRAIN_S = 5.0
_DRAIN_BYTES = 1 << 30
TEMPLATE = "deedbox.template"
ON_BEHALF_OF = "Deedbox-On-Behalf-Of"
JOB = "deedbox.job_id"
CHALLENGE = "deedbox.challenge"


class _Incoming:
    """The request's messages, and whether they have all been read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.begun = False
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.begun = True
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def drain(self) -> bool:
        """Read what is left of the body, within bounds, so that a caller who is still sending gets the answer."""
        size = 0
        try:
            async with asyncio.timeout(_DRAIN_S):
                while not self.ended and size < _DRAIN_BYTES:
                    size += len((await self()).get("body", b""))
        except TimeoutError:
            return False
        return self.ended


class Endpoint:
    """All methods of one path. GET answers HEAD as well; any other method is refused with the list of those there are."""

    def __init__(self, template: str, handlers: Mapping[str, Handler]) -> None:
        """`template` is the path as it is logged and documented."""
        self._template = template
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._allow = ", ".join(sorted(self._handlers))

    @property
    def methods(self) -> frozenset[str]:
        """The methods that it answers."""
        return frozenset(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope[TEMPLATE] = self._template
        incoming = _Incoming(receive)
        request = Request(scope, incoming)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        if response.status_code >= HTTPStatus.BAD_REQUEST and not incoming.ended:
            # A caller that waits for our word before it sends is answered at once; one that sends already is heard out.
            waits = header_values(request, "Expect") and not incoming.begun
            if waits or not await incoming.drain():
                response.headers["Connection"] = "close"
        await response(scope, incoming, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        if handler is None:
            refusal = DeedboxError("method_not_allowed", f"This address takes {self._allow}.")
            return problem(refusal, {"Allow": self._allow})
        try:
            return await handler(request)
        except DeedboxError as error:
            return problem(error, request.scope.get(CHALLENGE) if error.code == "insufficient_scope" else None)
        except ClientDisconnect:
            raise
        except AWAY as error:
            telemetry.log("http").warning("store_away", route=self._template, error=type(error).__name__)
            return unavailable()
        except Exception:  # noqa: BLE001 -- whatever it was, the caller gets a problem and the log the rest
            telemetry.log("http").exception("request_failed", route=self._template)
            return internal()


def note_job(request: Request, job_id: object) -> None:
    """Name the job in the request's line of the log."""
    request.scope[JOB] = str(job_id)


def route(template: str, **handlers: Handler) -> Route:
    """A route with a handler per method, by keyword: `GET=…`."""
    return Route(template, Endpoint(template, handlers), name=template)


def known(deps: HttpDeps, handler: KnownHandler) -> Handler:
    """A handler that is called only with the principal of the request's bearer key; else 401. Cookies are not read.

    A form key, which is public, opens none of these.
    """

    async def run(request: Request) -> Response:
        principal = await who(deps, request)
        if isinstance(principal, Response):
            return principal
        if principal.form is not None:
            return problem(DeedboxError("permission_denied", "A form key submits one action and opens nothing else."))
        return await handler(request, principal)

    return run


async def who(deps: HttpDeps, request: Request) -> Principal | Response:
    """Who holds the request's bearer key or token, or for whom that service calls; else the refusal."""
    given = header_values(request, "Authorization")
    scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        return _unknown(deps, request, "Send an API key as `Authorization: Bearer KEY`.", None)
    principal = await deps.resolve_key(key)
    if principal is None:
        return _unknown(deps, request, "The key is unknown, expired or revoked.", "invalid_token")
    named = one_header(request, ON_BEHALF_OF)
    if named is not None:
        acting = await _acting(deps, principal, key, _as_text(named))
        if acting is None:
            # One answer for a key without the right, and for somebody unknown, disabled or of another tenant.
            return problem(DeedboxError("permission_denied", "This key may not act for anybody of that name."))
        principal = acting
    if not principal.is_within_scope(_scopes(deps, request)):
        refusal = DeedboxError("insufficient_scope", "The access token was not issued for this.")
        return problem(refusal, _challenge(deps, request, "insufficient_scope"))
    if principal.scope is not None:
        # What a handler finds to be lacking is told in the same way.
        request.scope[CHALLENGE] = _challenge(deps, request, "insufficient_scope")
    return principal


async def _acting(deps: HttpDeps, principal: Principal, key: str, name: str) -> Principal | None:
    """The person for whom the service that holds the key or the token calls."""
    if principal.method == "api_key" and deps.identity is not None:
        return await resolve_acting(deps.identity.pool, key, name, deps.identity.keys)
    if principal.method == "access_token" and deps.bearer is not None:
        return await deps.bearer.resolve_acting(key, name, deps.face)
    return None


def _unknown(deps: HttpDeps, request: Request, detail: str, error: str | None) -> Response:
    return problem(DeedboxError("unauthenticated", detail), _challenge(deps, request, error))


def _challenge(deps: HttpDeps, request: Request, error: str | None) -> dict[str, str]:
    """What the caller is told to come with; where there are tokens, where they are issued and for what scopes (RFC 9728)."""
    if deps.bearer is None:
        return {"WWW-Authenticate": 'Bearer realm="deedbox"' + (f', error="{error}"' if error else "")}
    return {"WWW-Authenticate": deps.bearer.challenge(deps.face, error, _scopes(deps, request))}


def _scopes(deps: HttpDeps, request: Request) -> frozenset[Verb]:
    """What a token must have been issued for to come in here: any of these."""
    method = "GET" if request.method == "HEAD" else request.method
    needed = ROUTES.get((method, "/mcp" if deps.face == "mcp" else request.scope.get(TEMPLATE, "")))
    return frozenset() if needed is None else needed.scopes


def _as_text(value: str) -> str:
    """A header's value as the UTF-8 it was sent in; names are not ASCII alone."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


async def patiently(request: Request, deps: HttpDeps, wait_s: float, ask: Callable[[float], Awaitable[Answer]]) -> Answer:
    """Ask with a wait, given up when the server stops (then asked without one) or when the caller hangs up.

    Raises ClientDisconnect when the caller is gone. The body must have been read.
    """
    if wait_s <= 0 or deps.stopping.is_set():
        return await ask(0)
    asked = asyncio.ensure_future(ask(wait_s))
    stopped = asyncio.ensure_future(deps.stopping.wait())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({asked, stopped, gone}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        if gone.done():
            raise ClientDisconnect
    finally:
        for task in (asked, stopped, gone):
            task.cancel()
        await asyncio.gather(asked, stopped, gone, return_exceptions=True)
    return await ask(0)


async def unless_gone(request: Request, answer: Awaitable[Answer]) -> Answer:
    """The answer; given up when the caller hangs up, with ClientDisconnect. The body must have been read."""
    asked = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise ClientDisconnect
    finally:
        for task in (asked, gone):
            task.cancel()
        await asyncio.gather(asked, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

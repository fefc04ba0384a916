"""A small CRM as a process of its own, with the faults that real ones have.

`python -m examples.support_desk.crm --port 0 --database PATH --port-file PATH` serves on 127.0.0.1. Every route but
`/healthz` needs the bearer token from `--token` or `SUPPORT_DESK_CRM_TOKEN`. `POST /faults` makes the next deliveries go
wrong after (or before) they were accepted, which is how the demo shows an unknown outcome and its look-up.
"""

import argparse
import asyncio
import hmac
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.support_desk.crm_store import CrmStore, KeyReusedError, Kind, Stored
from examples.support_desk.listening import announce, listen

TOKEN_VARIABLE = "SUPPORT_DESK_CRM_TOKEN"  # noqa: S105 -- the variable's name, not a token
MAX_BODY = 64 * 1024
MAX_KEY = 255

T = TypeVar("T", bound=BaseModel)

FaultMode = Literal["none", "accept_then_hang", "503_after_accept", "503_before_accept"]


class NewNote(BaseModel):
    """A note on a customer."""

    model_config = ConfigDict(extra="forbid")
    customer_email: str = Field(min_length=3, max_length=320)
    text: str = Field(min_length=1, max_length=8000)
    source: str | None = Field(default=None, max_length=300)


class NewTicket(BaseModel):
    """A ticket for the people of the desk."""

    model_config = ConfigDict(extra="forbid")
    customer_email: str = Field(min_length=3, max_length=320)
    title: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=8000)
    category: Literal["delivery", "billing", "defect", "other"] = "other"
    priority: Literal["low", "normal", "high"] = "normal"


class Fault(BaseModel):
    """What the next deliveries meet: `times` of them, then all is well again."""

    model_config = ConfigDict(extra="forbid")
    mode: FaultMode
    times: int = Field(default=1, ge=0, le=1000)


class RefusalError(Exception):
    """A request that gets a problem for an answer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        """`code` is stable, `detail` a sentence."""
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class Crm:
    """The routes; holds the store and the fault that is armed."""

    def __init__(self, store: CrmStore) -> None:
        """Serve this store, with no fault armed."""
        self._store = store
        self._fault = Fault(mode="none", times=0)

    def routes(self) -> list[Route]:
        """Every route of the CRM."""
        return [
            Route("/healthz", _healthz, methods=["GET"]),
            Route("/customers", self._customers, methods=["GET"]),
            Route("/notes", self._notes, methods=["GET", "POST"]),
            Route("/notes/by-key/{key}", self._note_by_key, methods=["GET"]),
            Route("/tickets", self._tickets, methods=["GET", "POST"]),
            Route("/tickets/by-key/{key}", self._ticket_by_key, methods=["GET"]),
            Route("/by-key/{key}", self._any_by_key, methods=["GET"]),
            Route("/faults", self._faults, methods=["GET", "POST"]),
        ]

    async def _customers(self, request: Request) -> Response:
        found = await run_in_threadpool(self._store.customers, request.query_params.get("email"))
        return JSONResponse({"customers": found})

    async def _notes(self, request: Request) -> Response:
        return await self._objects(request, "note", NewNote)

    async def _tickets(self, request: Request) -> Response:
        return await self._objects(request, "ticket", NewTicket)

    async def _note_by_key(self, request: Request) -> Response:
        return await self._by_key(request, "note")

    async def _ticket_by_key(self, request: Request) -> Response:
        return await self._by_key(request, "ticket")

    async def _any_by_key(self, request: Request) -> Response:
        return await self._by_key(request, None)

    async def _faults(self, request: Request) -> Response:
        if request.method == "POST":
            self._fault = await _parsed(request, Fault)
        return JSONResponse(self._fault.model_dump())

    async def _by_key(self, request: Request, kind: Kind | None) -> Response:
        found = await run_in_threadpool(self._store.by_key, kind, str(request.path_params["key"]))
        if found is None:
            raise RefusalError(404, "not_found", "No object was made with this key.")
        return JSONResponse(found)

    async def _objects(self, request: Request, kind: Kind, model: type[NewNote] | type[NewTicket]) -> Response:
        if request.method == "GET":
            return JSONResponse({f"{kind}s": await run_in_threadpool(self._store.list_all, kind)})
        key = _key_of(request)
        body = await _parsed(request, model)
        mode = self._next_fault()
        if mode == "503_before_accept":
            raise RefusalError(503, "unavailable", "Nothing was stored.")
        try:
            stored = await run_in_threadpool(self._store.accept, kind, key, body.model_dump(exclude_none=True))
        except KeyReusedError as error:
            raise RefusalError(422, "key_reused", "The Idempotency-Key is bound to another body.") from error
        if mode == "accept_then_hang":
            await _until_caller_leaves(request)
        if mode == "503_after_accept":
            raise RefusalError(503, "unavailable", "Something broke after the request was taken.")
        return _answer(kind, stored)

    def _next_fault(self) -> FaultMode:
        """The fault this delivery meets; counted here, where no other request can run in between."""
        mode = self._fault.mode if self._fault.times > 0 else "none"
        left = max(self._fault.times - 1, 0)
        self._fault = Fault(mode=self._fault.mode if left else "none", times=left)
        return mode


class BearerOnly:
    """ASGI middleware: without the one token there is nothing to see but the health of the process."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """Guard `app` with `token`."""
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http" and scope["path"] != "/healthz":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                answer = _problem(None, RefusalError(401, "unauthenticated", "A bearer token is needed."))
                answer.headers["WWW-Authenticate"] = "Bearer"
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _answer(kind: Kind, stored: Stored) -> Response:
    headers = {"Idempotent-Replayed": "true"} if stored.replayed else {"Location": f"/{kind}s/{stored.value['id']}"}
    return JSONResponse(stored.value, status_code=200 if stored.replayed else 201, headers=headers)


def _problem(_request: Request | None, error: Exception) -> Response:
    refusal = error if isinstance(error, RefusalError) else RefusalError(500, "internal", "Something went wrong here.")
    body = {"code": refusal.code, "detail": refusal.detail}
    return JSONResponse(body, status_code=refusal.status, media_type="application/problem+json")


def _key_of(request: Request) -> str | None:
    """The idempotency key, quoted or bare; None where the caller sent none. Raises RefusalError for one of no use."""
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    quoted = len(given) > 1 and given.startswith('"') and given.endswith('"')
    key = given[1:-1] if quoted else given
    if not key.strip() or len(key) > MAX_KEY or not key.isprintable():
        raise RefusalError(400, "key_invalid", "The Idempotency-Key is blank, too long or not printable.")
    return key


async def _parsed(request: Request, model: type[T]) -> T:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise RefusalError(413, "body_too_large", f"At most {MAX_BODY} bytes.")
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors()[0]
        pointer = "/".join(str(part) for part in first["loc"])
        raise RefusalError(400, "invalid_input", f"/{pointer}: {first['msg']}") from error


async def _until_caller_leaves(request: Request) -> None:
    """Say nothing for as long as the caller listens; whatever is answered afterwards reaches nobody."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def build(store: CrmStore, token: str) -> ASGIApp:
    """The CRM as an ASGI application over a store. Raises ValueError for an empty token."""
    if not token:
        raise ValueError("the CRM needs a token")
    return BearerOnly(Starlette(routes=Crm(store).routes(), exception_handlers={RefusalError: _problem}), token)


async def serve(port: int, database: Path, port_file: Path, token: str) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; the port is in `port_file` once it can be dialled."""
    store = CrmStore(database)
    try:
        # A hanging answer must not hold up the end of the process: one second, then it is cut off.
        config = uvicorn.Config(
            build(store, token), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
        )
        sock = listen(port)
        announce(sock, port_file)
        await uvicorn.Server(config).serve(sockets=[sock])
    finally:
        store.close()


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 2 where no token was given, 0 after a plain end."""
    parser = argparse.ArgumentParser(prog="examples.support_desk.crm", description="The support desk's small CRM.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 lets the kernel choose")
    parser.add_argument("--database", type=Path, required=True, help="the CRM's own SQLite file")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written once it can be dialled")
    parser.add_argument("--token", default=os.environ.get(TOKEN_VARIABLE, ""), help=f"bearer token; default: {TOKEN_VARIABLE}")
    given = parser.parse_args(argv)
    if not given.token:
        sys.stderr.write(f"crm: set {TOKEN_VARIABLE} or give --token\n")
        return 2
    asyncio.run(serve(given.port, given.database, given.port_file, given.token))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

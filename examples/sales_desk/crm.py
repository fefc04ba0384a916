"""The sales desk's small CRM, a process of its own, with the faults that real ones have.

`python -m examples.sales_desk.crm --port 0 --port-file PATH` serves on 127.0.0.1; every route but `/healthz` needs the bearer
token from `--token` or `SALES_DESK_CRM_TOKEN`. One idempotency key makes one thing, however often it comes. `POST /faults`
breaks what comes next, `GET /writes` tells everything that was ever done. It keeps all in memory: a stand-in, not a store.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvicorn
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from examples.support_desk.crm import BearerOnly
from examples.support_desk.listening import announce, listen

TOKEN_VARIABLE = "SALES_DESK_CRM_TOKEN"  # noqa: S105 -- the variable's name, not a token
FaultMode = Literal["none", "hang", "busy", "broken", "half", "second_refused"]

CUSTOMERS: tuple[dict[str, Any], ...] = (
    {"id": "cust_1", "email": "zoe.brandt@example.org", "name": "Zoë Brandt", "language": "en", "plan": "business"},
    {"id": "cust_2", "email": "juergen.gross@example.org", "name": "Jürgen Groß", "language": "de", "plan": "standard"},
)
ORDERS: tuple[dict[str, Any], ...] = (
    {"order_number": "A-10482", "state": "in_transit", "carrier": "Post", "expected_on": "2027-03-04"},
    {"order_number": "B-20451", "state": "delivered", "carrier": None, "expected_on": None},
)
DEALS: tuple[dict[str, Any], ...] = tuple({"id": f"deal_{number}", "stage": "qualified"} for number in range(1, 41))


class Fault(BaseModel):
    """How everything goes wrong until the next call of `/faults` says otherwise.

    `hang`: it is done, and nothing is answered. `busy`: 429, nothing is done. `broken`: it is done, and 500 is answered.
    `half`: answers to questions lack their parts. `second_refused`: the next write is done, those after it are refused.
    """

    model_config = ConfigDict(extra="forbid")
    mode: FaultMode


@dataclass
class Crm:
    """What the CRM knows, what was done to it, and how it breaks."""

    deals: dict[str, dict[str, Any]] = field(default_factory=lambda: {deal["id"]: dict(deal) for deal in DEALS})
    writes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    by_key: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    mode: FaultMode = "none"
    since: int = 0
    healed: asyncio.Event = field(default_factory=asyncio.Event)

    def routes(self) -> list[Route]:
        """Every route of the CRM."""
        made = [Route(f"/{kind}s", self._make, methods=["POST"]) for kind in ("lead", "ticket", "draft", "note")]
        return [
            Route("/healthz", _healthz),
            Route("/customers", self._customers),
            Route("/orders", self._orders),
            Route("/deals", self._deals),
            Route("/deals/{deal_id}", self._move, methods=["PATCH"]),
            Route("/by-key/{key}", self._by_key),
            Route("/writes", self._writes),
            Route("/faults", self._faults, methods=["POST"]),
            *made,
        ]

    async def _customers(self, request: Request) -> Response:
        email = request.query_params.get("email", "").lower()
        return await self._found("customers", [row for row in CUSTOMERS if row["email"] == email])

    async def _orders(self, request: Request) -> Response:
        number = request.query_params.get("number", "")
        return await self._found("orders", [row for row in ORDERS if row["order_number"] == number])

    async def _deals(self, request: Request) -> Response:
        deal = self.deals.get(request.query_params.get("id", ""))
        return await self._found("deals", [] if deal is None else [deal])

    async def _found(self, name: str, rows: Sequence[dict[str, Any]]) -> Response:
        """The answer to a question, unless something breaks."""
        broken = await self._breaks()
        if broken is not None:
            return broken
        if self.mode == "half":
            return JSONResponse({name: [{"id": row.get("id")} for row in rows]})
        return JSONResponse({name: list(rows)})

    async def _make(self, request: Request) -> Response:
        kind = request.url.path.strip("/").removesuffix("s")
        return await self._write(request, kind, await request.json())

    async def _move(self, request: Request) -> Response:
        deal = self.deals.get(str(request.path_params["deal_id"]))
        if deal is None:
            return JSONResponse({"code": "not_found"}, 404)
        return await self._write(request, "deal", {**await request.json(), "id": deal["id"]})

    async def _write(self, request: Request, kind: str, body: dict[str, Any]) -> Response:
        """Do it once per key, unless it breaks before; answer, unless it breaks after."""
        key = request.headers.get("idempotency-key", "").strip('"')
        if self.mode == "busy":
            return JSONResponse({"code": "busy"}, 429, {"Retry-After": "1"})
        if self.mode == "second_refused" and key not in self.by_key and len(self.writes) > self.since:
            return JSONResponse({"code": "refused"}, 422)
        done = self.by_key.get(key) if key else None
        if done is None:
            made = {"id": f"{kind}_{len(self.writes) + 1}", **body, "kind": kind, "key": key}
            self.writes.append(made)
            done = self.by_key[key] = made
            if kind == "deal":
                self.deals[made["id"]].update(stage=body["stage"])
        return await self._breaks() or JSONResponse(done, 201)

    async def _breaks(self) -> Response | None:
        if self.mode == "busy":
            return JSONResponse({"code": "busy"}, 429, {"Retry-After": "1"})
        if self.mode == "broken":
            return JSONResponse({"code": "broken", "trace": "<html>Traceback (most recent call last)</html>"}, 500)
        if self.mode == "hang":
            await self.healed.wait()
            return JSONResponse({"code": "too_late"}, 503)
        return None

    async def _by_key(self, request: Request) -> Response:
        found = self.by_key.get(str(request.path_params["key"]))
        return await self._breaks() or (JSONResponse({"code": "not_found"}, 404) if found is None else JSONResponse(found))

    async def _writes(self, _request: Request) -> Response:
        return JSONResponse({"writes": self.writes})

    async def _faults(self, request: Request) -> Response:
        try:
            fault = Fault.model_validate_json(await request.body())
        except ValidationError:
            return JSONResponse({"code": "invalid_input"}, 400)
        self.mode, self.since = fault.mode, len(self.writes)
        # Whoever hung until now is let go, and whoever hangs from now on waits for the next change.
        self.healed.set()
        self.healed = asyncio.Event()
        return JSONResponse(fault.model_dump())


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def build(token: str) -> ASGIApp:
    """The CRM as an ASGI application. Raises ValueError for an empty token."""
    if not token:
        raise ValueError("the CRM needs a token")
    return BearerOnly(Starlette(routes=Crm().routes()), token)


async def serve(port: int, port_file: Path, token: str) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; the port is in `port_file` once it can be dialled."""
    config = uvicorn.Config(build(token), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    sock = listen(port)
    announce(sock, port_file)
    await uvicorn.Server(config).serve(sockets=[sock])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 2 where no token was given, 0 after a plain end."""
    parser = argparse.ArgumentParser(prog="examples.sales_desk.crm", description="The sales desk's small CRM.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 lets the kernel choose")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written once it can be dialled")
    parser.add_argument("--token", default=os.environ.get(TOKEN_VARIABLE, ""), help=f"bearer token; default: {TOKEN_VARIABLE}")
    given = parser.parse_args(argv)
    if not given.token:
        sys.stderr.write(f"crm: set {TOKEN_VARIABLE} or give --token\n")
        return 2
    asyncio.run(serve(given.port, given.port_file, given.token))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

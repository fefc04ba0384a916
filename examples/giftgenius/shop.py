"""The product API as a process of its own, which fails as real ones do.

`python -m examples.giftgenius.shop --port 0 --port-file PATH` serves on 127.0.0.1. Of each twenty requests for products and
offers two are answered 500 and two 429 with `Retry-After`. `POST /faults` switches that off, lets everything fail, or holds
answers back until it is told otherwise; `GET /seen` says what was asked for and how it was answered.
"""

import argparse
import asyncio
import hmac
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.giftgenius.goods import CATEGORIES, stock
from examples.support_desk.listening import announce, listen

TOKEN_VARIABLE: Final = "GIFTGENIUS_SHOP_TOKEN"  # noqa: S105 -- the variable's name, not a token
ROUND: Final = 20
FLAKY: Final = {3: 500, 8: 429, 12: 500, 17: 429}
"""Which requests of each round fail, and how."""

Mode = Literal["flaky", "well", "down", "held"]


class Shop:
    """The shelves, how they behave today, and what was asked of them."""

    def __init__(self, token: str, pause_s: float = 0.0) -> None:
        """Behaves flakily; each answer takes `pause_s` seconds."""
        self._token = f"Bearer {token}"
        self._pause_s = pause_s
        self._mode: Mode = "flaky"
        self._free = asyncio.Event()
        self._free.set()
        self._asked = 0
        self._answered: Counter[str] = Counter()
        self._served: Counter[str] = Counter()
        self._holding = 0
        self._left = 0
        self._stock = stock()

    def app(self) -> Starlette:
        """The routes."""
        return Starlette(
            routes=[
                Route("/products", self._products, methods=["GET"]),
                Route("/offers/{sku}", self._offer, methods=["GET"]),
                Route("/faults", self._faults, methods=["POST"]),
                Route("/seen", self._seen, methods=["GET"]),
            ]
        )

    async def _products(self, request: Request) -> Response:
        category = request.query_params.get("category", "")
        if category not in CATEGORIES:
            return _problem(404, f"There is no category {category[:40]!r}.")
        found = [product.model_dump(mode="json") for product in self._stock.values() if product.category == category]
        return await self._answer(request, {"products": found})

    async def _offer(self, request: Request) -> Response:
        product = self._stock.get(str(request.path_params["sku"]))
        if product is None:
            return _problem(404, "There is no such product.")
        number = int(product.sku.split("-")[1])
        # Every seventh is sold out, every fifth costs less today.
        price = round(product.price * (0.9 if number % 5 == 0 else 1.0), 2)
        return await self._answer(
            request, {"sku": product.sku, "price": price, "in_stock": number % 7 != 0, "days": 1 + number % 4}
        )

    async def _answer(self, request: Request, body: dict[str, object]) -> Response:
        if not hmac.compare_digest(request.headers.get("authorization", ""), self._token):
            return _problem(401, "A bearer token is needed.")
        self._asked += 1
        status = FLAKY.get(self._asked % ROUND, 200) if self._mode == "flaky" else 503 if self._mode == "down" else 200
        if not self._free.is_set() and not await self._let_go(request):
            self._left += 1
            return _problem(503, "Nobody waits any more.")
        await asyncio.sleep(self._pause_s)
        self._answered[str(status)] += 1
        if status != 200:
            return _problem(status, "Too many requests." if status == 429 else "Something broke.")
        self._served[request.url.path + ("?" + request.url.query if request.url.query else "")] += 1
        return JSONResponse(body)

    async def _let_go(self, request: Request) -> bool:
        """Hold an answer back; whether the caller was still there at the end."""
        self._holding += 1
        gone, free = asyncio.create_task(_gone(request)), asyncio.create_task(self._free.wait())
        try:
            await asyncio.wait([gone, free], return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            self._holding -= 1
            gone.cancel()
            free.cancel()

    async def _faults(self, request: Request) -> Response:
        mode = (await request.json()).get("mode")
        if mode not in get_args(Mode):
            return _problem(400, f"A mode is one of {', '.join(get_args(Mode))}.")
        self._mode = mode
        if mode == "held":
            self._free.clear()
        else:
            self._free.set()
        return await self._seen(request)

    async def _seen(self, _request: Request) -> Response:
        seen = {"asked": self._asked, "answered": self._answered, "served": self._served}
        return JSONResponse({"mode": self._mode, "holding": self._holding, "left": self._left, **seen})


async def _gone(request: Request) -> None:
    """Until the caller hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _problem(status: int, detail: str) -> Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse({"detail": detail}, status_code=status, headers=headers, media_type="application/problem+json")


async def serve(port: int, port_file: Path, token: str, pause_s: float) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; the port is in `port_file` once it can be dialled."""
    app = Shop(token, pause_s).app()
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    sock = listen(port)
    announce(sock, port_file)
    await uvicorn.Server(config).serve(sockets=[sock])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 2 where no token was given, 0 after a plain end."""
    parser = argparse.ArgumentParser(prog="examples.giftgenius.shop", description="A product API that fails now and then.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 lets the kernel choose")
    parser.add_argument("--port-file", type=Path, required=True, help="where the port is written once it can be dialled")
    parser.add_argument("--pause-ms", type=float, default=150, help="how long each answer takes")
    given = parser.parse_args(argv)
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        sys.stderr.write(f"shop: set {TOKEN_VARIABLE}\n")
        return 2
    asyncio.run(serve(given.port, given.port_file, token, given.pause_ms / 1000))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

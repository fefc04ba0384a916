"""Accepting over HTTP: one server process as `deedbox serve` runs it, beside a route of it that answers 202 at once."""

import asyncio
import random
import socket
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench import processor
from bench.app import make_app
from bench.cells import http_load
from bench.child import Bench, Child, run
from bench.database import Database, Server
from bench.samples import Sample, percentiles
from deedbox.cli.listening import ApiServer
from deedbox.settings import Settings
from deedbox.telemetry import configure_logging
from deedbox.wiring import Database as Store
from deedbox.wiring import make_asgi, opened

MODULE = "bench.cells.http_accept"
CONNECTIONS = 32
BARE = "/bench/bare"
_WARM_UP_S = 0.5
_BARE_ANSWER = {
    "job_id": "01900000-0000-7000-8000-000000000000",
    "status": "queued",
    "status_url": "http://127.0.0.1:8484/api/jobs/01900000-0000-7000-8000-000000000000",
    "events_url": "http://127.0.0.1:8484/api/jobs/01900000-0000-7000-8000-000000000000/events",
}


async def measure(server: Server, seconds: float) -> list[Sample]:
    """Both routes of one server, one after the other in either order, each warmed up for half a second."""
    samples: list[Sample] = []
    async with server.fresh() as database, Child(MODULE, {}, database.url) as serving:
        port = int((await serving.hear())["port"])
        first = http_load.FIRST
        for cell in random.sample(("http_bare", "http_accept"), 2):
            options = {
                "path": BARE if cell == "http_bare" else None,
                "key": server.key,
                "port": port,
                "connections": CONNECTIONS,
            }
            warmed, _ = await load(server, database, serving, options | {"seconds": _WARM_UP_S, "first": first})
            figures, used = await load(
                server, database, serving, options | {"seconds": seconds, "first": first + warmed["sent"]}
            )
            count = len(figures["waits"])
            duplicates = losses = 0
            if cell == "http_accept":
                duplicates, losses = await check(database, first, warmed["sent"] + figures["sent"])
            values = {
                "rate": count / figures["seconds"],
                **percentiles(figures["waits"]),
                "cpu_us": used.micros([serving.pid], count),
                "server_process_us": used.ours[serving.pid] / max(1, count) * 1e6,
            }
            samples.append(Sample(cell, values, count, duplicates, losses, used.others))
    return samples


async def load(
    server: Server, database: Database, serving: Child, options: dict[str, Any]
) -> tuple[dict[str, Any], processor.Used]:
    """Load a server that listens, from a process of its own; every answer has to be a 202."""
    async with Child(http_load.MODULE, options, database.url) as loading:
        await loading.hear()
        await database.settle()
        before = processor.read(server.postmaster, [serving.pid, loading.pid])
        loading.tell("go")
        figures = await loading.hear(within=options["seconds"] + 60)
        used = processor.between(before, processor.read(server.postmaster, [serving.pid, loading.pid]))
    assert figures["refused"] == 0, figures["example"]
    assert figures["sent"] == len(figures["waits"])
    return figures, used


async def check(database: Database, first: int, sent: int) -> tuple[int, int]:
    """Duplicates, and answered requests without their job, payload and place in the queue."""
    row = await database.row(
        """
        SELECT count(*) - count(DISTINCT idempotency_key),
               (SELECT count(*) FROM generate_series(%(first)s, %(first)s + %(sent)s - 1) AS n WHERE NOT EXISTS (
                    SELECT FROM deedbox.job JOIN deedbox.job_payload USING (job_id) JOIN deedbox.queue USING (job_id)
                    WHERE idempotency_key = 'job-' || n AND input ->> 'number' = n::text))
        FROM deedbox.job
        """,
        first=first,
        sent=sent,
    )
    return int(row[0]), int(row[1])


async def _bare(request: Request) -> Response:
    await request.body()
    return JSONResponse(_BARE_ANSWER, status_code=202)


async def main(_options: dict[str, Any], url: str, bench: Bench) -> None:
    """Serve on a free port until told to stop."""
    settings = Settings()
    configure_logging(settings.log_level)
    async with opened(settings, make_app(), Store(url, url), roles=["api"]) as installation:
        stopping = asyncio.Event()
        face = make_asgi(installation, stopping)
        assert isinstance(face, Starlette)
        face.router.routes.insert(0, Route(BARE, _bare, methods=["POST"]))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = ApiServer(face)
            serving = asyncio.create_task(server.serve([listener]))
            await server.ready.wait()
            bench.say(port=listener.getsockname()[1])
            await bench.told()
            stopping.set()
            server.should_exit = True
            await serving


if __name__ == "__main__":
    run(main)

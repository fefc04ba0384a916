"""Starting over MCP, 8 at once: our face with a worker beside it, and the SDK's own server with a tool that only answers."""

import asyncio
import random
import socket
import time
from typing import Any

import uvicorn
from mcp.server import MCPServer
from pydantic import BaseModel, Field

from bench import processor
from bench.cells import mcp_load
from bench.child import Bench, Child, run
from bench.database import Database, Server
from bench.samples import Sample, percentiles
from deedbox.cli.listening import ApiServer
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.model.policy import allow
from deedbox.settings import Settings
from deedbox.telemetry import configure_logging
from deedbox.wiring import Database as Store
from deedbox.wiring import make_asgi, opened, run_roles

MODULE = "bench.cells.mcp_start"
AT_ONCE = 8
STEPS = 15
SENT_AT = "sent at "
_WARM_UP_S = 0.5
_STOPS_WITHIN_S = 60.0
_ENDED_WITHIN_S = 30


class _Plain(uvicorn.Server):
    """uvicorn as it comes, which says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Given(BaseModel):
    """What a call brings."""

    number: int


class Answered(BaseModel):
    """What comes of it."""

    text: str = Field(max_length=40)


async def measure(server: Server, seconds: float) -> list[Sample]:
    """Both tools of ours and the sample's, one after the other in any order, each warmed up for half a second."""
    tools = {"mcp_start": "start_call", "mcp_call": "take_call"}
    return [
        await (_sample(server, seconds) if cell == "mcp_sample" else _ours(server, cell, tools[cell], seconds))
        for cell in random.sample((*tools, "mcp_sample"), 3)
    ]


async def _ours(server: Server, cell: str, tool: str, seconds: float) -> Sample:
    """Every call is a job that was accepted and is run by the worker; one that is waited for is answered with its result."""
    async with server.fresh() as database:
        work, serve = (Child(MODULE, {"part": part}, database.url) for part in ("worker", "api"))
        async with work as working, serve as serving:
            await working.hear()
            port = int((await serving.hear())["port"])
            load = {"key": server.key, "port": port, "tool": tool}
            figures, used, sent = await _loaded(server, database, [serving, working], load, seconds)
            await _ended(database)
            working.tell("stop")
            await working.hear(within=_STOPS_WITHIN_S)
            row = await database.row(
                """
                SELECT (SELECT count(*) FROM deedbox.job) - count(DISTINCT idempotency_key),
                       %(sent)s - count(*) FILTER (WHERE state = 'completed')
                FROM deedbox.job LEFT JOIN deedbox.result USING (job_id)
                """,
                sent=sent,
            )
    waits = figures["waits"]
    values = {"rate": len(waits) / figures["seconds"], **percentiles(waits)}
    values |= {"cpu_us": used.micros([serving.pid, working.pid], len(waits)), "pending": float(figures["pending"])}
    return Sample(cell, values, len(waits), int(row[0]), max(0, int(row[1])), used.others)


async def _ended(database: Database) -> None:
    """Wait for the jobs that were only started; those that are not over by then count as lost."""
    for _ in range(_ENDED_WITHIN_S * 20):
        if int((await database.row("SELECT count(*) FROM deedbox.queue"))[0]) == 0:
            return
        await asyncio.sleep(0.05)


async def _sample(server: Server, seconds: float) -> Sample:
    """Nothing is stored, and nothing runs but the function."""
    async with server.fresh() as database, Child(MODULE, {"part": "sample"}, database.url) as serving:
        port = int((await serving.hear())["port"])
        load = {"key": "none", "port": port, "tool": "take_call"}
        figures, used, _ = await _loaded(server, database, [serving], load, seconds)
    waits = figures["waits"]
    values = {"rate": len(waits) / figures["seconds"], **percentiles(waits), "cpu_us": used.micros([serving.pid], len(waits))}
    return Sample("mcp_sample", values, len(waits), 0, 0, used.others)


async def _loaded(
    server: Server, database: Database, measured: list[Child], load: dict[str, Any], seconds: float
) -> tuple[dict[str, Any], processor.Used, int]:
    """Load it from a process of its own; the figures, the processor's time, and how many calls there were with the warm-up."""
    sent = 0
    figures: dict[str, Any] = {}
    used: processor.Used | None = None
    for how_long in (_WARM_UP_S, seconds):
        options = {**load, "connections": AT_ONCE, "seconds": how_long, "first": mcp_load.FIRST + sent}
        async with Child(mcp_load.MODULE, options, database.url) as loading:
            await loading.hear()
            await database.settle()
            pids = [loading.pid, *(child.pid for child in measured)]
            before = processor.read(server.postmaster, pids)
            loading.tell("go")
            figures = await loading.hear(within=how_long + 60)
            used = processor.between(before, processor.read(server.postmaster, pids))
        assert figures["refused"] == 0, figures["example"]
        assert figures["sent"] == len(figures["waits"])
        sent += figures["sent"]
    assert used is not None
    return figures, used, sent


def make_app() -> App:
    """One tool that is waited for, the same one that is only started, and one that takes its time and tells how far it is."""
    app = App()

    @app.action(roles=["operator"], policy=allow(), tool=True, tool_wait=0)
    async def start_call(_ctx: Context, given: Given) -> Answered:
        """Start a call."""
        return Answered(text=f"taken {given.number}")

    @app.action(roles=["operator"], policy=allow(), tool=True)
    async def take_call(_ctx: Context, given: Given) -> Answered:
        """Take a call."""
        return Answered(text=f"taken {given.number}")

    @app.action(roles=["operator"], policy=allow(), tool=True)
    async def run_steps(ctx: Context, given: Given) -> Answered:
        """Run some steps."""
        for step in range(1, STEPS + 1):
            await ctx.progress(step, STEPS, f"{SENT_AT}{time.time():.3f}")  # noqa: TID251 -- the clock that pages have
            # No two progress calls of a job are told within half a second.
            await asyncio.sleep(0.6)
        return Answered(text=f"run {given.number}")

    assert list(app.actions) == ["start_call", "take_call", "run_steps"], (start_call, take_call, run_steps)
    return app


def make_sample() -> Any:
    """The SDK's server with the same tool as a plain function, without sessions as ours."""
    server = MCPServer("sample")

    @server.tool()
    async def take_call(number: int) -> str:
        """Take a call."""
        return f"taken {number}"

    assert take_call
    return server.streamable_http_app(streamable_http_path="/mcp", stateless_http=True)


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Play a part until told to stop."""
    settings = Settings(worker_slots=500, drain_s=5.0)
    configure_logging(settings.log_level)
    if options["part"] == "sample":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = uvicorn.Config(make_sample(), log_level="warning", access_log=False, ws="none")
            await _serve(_Plain(config), listener, bench)
        return
    part = options["part"]
    async with opened(settings, make_app(), Store(url, url), roles=[part]) as installation:
        stopping = asyncio.Event()
        if part == "worker":
            loops = asyncio.create_task(run_roles(installation, ["worker"], stopping))
            bench.say(ready=True)
            await bench.told()
            stopping.set()
            await loops
            await bench.report(stopped=True)
            return
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await _serve(ApiServer(make_asgi(installation, stopping)), listener, bench, stopping)


async def _serve(
    server: "ApiServer | _Plain", listener: socket.socket, bench: Bench, stopping: asyncio.Event | None = None
) -> None:
    serving = asyncio.create_task(server.serve([listener]))
    await server.ready.wait()
    bench.say(port=listener.getsockname()[1])
    await bench.told()
    if stopping is not None:
        stopping.set()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    run(main)

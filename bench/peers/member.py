"""The process that is measured: one peer in one part (`install`, `accept`, `bulk`, `pace`, `work` or `serve`).

Runs in the peer's environment, so it imports nothing of Deedbox, and speaks to the bench as every measured process does.
"""

import asyncio
import importlib
import itertools
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any, cast

from bench.child import Bench, run
from bench.note import Note
from bench.peers.contract import Member
from bench.tally import Tally

MODULE = "bench.peers.member"
_WARM_UP_S = 1.0
_PACING_CONNECTIONS = 4


async def _install(member: Member, _options: dict[str, Any], bench: Bench) -> None:
    await member.install()
    await bench.report(installed=True)


async def _accept(member: Member, options: dict[str, Any], bench: Bench) -> None:
    submitters: int = options["submitters"]
    await member.open(submitters)
    numbers = itertools.count()
    waits: list[float] = []

    async def submitter(until: float) -> None:
        while (began := monotonic()) < until:
            await member.put({"number": next(numbers)})
            waits.append(monotonic() - began)

    async def all_submit(seconds: float) -> float:
        began = monotonic()
        await asyncio.gather(*(submitter(began + seconds) for _ in range(submitters)))
        return monotonic() - began

    await all_submit(_WARM_UP_S)
    waits.clear()
    bench.say(ready=True)
    await bench.told()
    seconds = await all_submit(options["seconds"])
    await bench.report(answered=next(numbers), measured=len(waits), seconds=seconds, waits=waits)


async def _bulk(member: Member, options: dict[str, Any], bench: Bench) -> None:
    await member.open(1)
    payloads = [{"number": number} for number in range(options["jobs"])]
    bench.say(ready=True)
    await bench.told()
    began = monotonic()
    await member.put_many(payloads)
    await bench.report(seconds=monotonic() - began)


async def _pace(member: Member, options: dict[str, Any], bench: Bench) -> None:
    await member.open(_PACING_CONNECTIONS)
    calls: list[tuple[int, float, float]] = []

    async def put(number: int) -> None:
        called = monotonic()
        await member.put({"number": number})
        calls.append((number, called, monotonic()))

    bench.say(ready=True)
    await bench.told()
    began = monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(options["jobs"]):
            await asyncio.sleep(max(0.0, began + number / options["per_second"] - monotonic()))
            group.create_task(put(number))
    await bench.report(calls=calls)


async def _work(member: Member, options: dict[str, Any], bench: Bench) -> None:
    tally = Tally(Path(options["tally"]))
    starts: list[tuple[int, float]] = []
    # One of the peers runs its handlers in threads.
    one_at_a_time = threading.Lock()

    def began(number: int) -> None:
        at = monotonic()
        with one_at_a_time:
            starts.append((number, at))
            tally.add()

    bench.say(ready=True)
    await bench.told()
    working = asyncio.create_task(member.work(began, options["pace"]))
    told = asyncio.create_task(bench.told())
    done, _ = await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
    if working in done:
        working.result()
        raise RuntimeError("the worker ended by itself")
    with one_at_a_time:
        bench.say(starts=starts)
    # Ended from outside: no library's way of stopping is measured here.
    await bench.told()


async def _serve(member: Member, options: dict[str, Any], bench: Bench) -> None:
    fastapi: Any = importlib.import_module("fastapi")
    uvicorn: Any = importlib.import_module("uvicorn")
    await member.open(options["connections"])
    app: Any = fastapi.FastAPI()

    async def take(note: Note) -> dict[str, int]:
        await member.put(note.model_dump())
        return {"accepted": note.number}

    app.post("/jobs", status_code=202)(take)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http="httptools", access_log=False, log_level="warning"))
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started and not serving.done():  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0.01)
        bench.say(port=listener.getsockname()[1])
        await bench.told()
        server.should_exit = True
        await serving


_PARTS: dict[str, Callable[[Member, dict[str, Any], Bench], Coroutine[Any, Any, None]]] = {
    "install": _install,
    "accept": _accept,
    "bulk": _bulk,
    "pace": _pace,
    "work": _work,
    "serve": _serve,
}


async def main(options: dict[str, Any], url: str, bench: Bench) -> None:
    """Play the part."""
    module = importlib.import_module(f"bench.peers.{options['peer']}")
    member = cast("Member", module.Member(url))
    await _PARTS[options["part"]](member, options, bench)


if __name__ == "__main__":
    run(main)

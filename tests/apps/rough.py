"""Handlers that treat their worker badly, and steps that are interrupted: for tests with real processes.

A handler that has to wait until it is told opens a named pipe: whoever opens its other end lets it go.
"""

import asyncio
import contextlib
import ctypes
import os
import threading
from pathlib import Path

from pydantic import BaseModel

from deedbox import App, Context, Retry, allow

app = App()
FEW = Retry(attempts=3, base=0.05, cap=0.1)


class Told(BaseModel):
    """The pipe or file to wait for, and the file that counts what was done."""

    gate: str
    marks: str = ""


class Did(BaseModel):
    """Which process did it, and in which attempt."""

    pid: int
    attempt: int


def did(ctx: Context) -> Did:
    """Said by whoever comes to the end."""
    return Did(pid=os.getpid(), attempt=ctx.attempt)


def mark(path: str) -> int:
    """Write a line, past every buffer; what is counted is what really ran."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return os.getpid()


async def seen(gate: str) -> None:
    """Return once a file is there."""
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 -- another process makes the file
        await asyncio.sleep(0.02)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def block_loop(ctx: Context, given: Told) -> Did:
    """Block the event loop of the process until the pipe is opened."""
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")  # a step of its own for each attempt
    Path(given.gate).read_bytes()  # noqa: ASYNC240 -- blocking is the point
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def never_listen(ctx: Context, given: Told) -> Did:
    """At the first attempt, ignore every cancellation for ever."""
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")
    while ctx.attempt == 1 and given.gate:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def never_turn(ctx: Context, given: Told) -> Did:
    """At the first attempt, block the event loop for ever."""
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")
    if ctx.attempt == 1 and given.gate:
        threading.Event().wait()
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def hold_gil(ctx: Context, given: Told) -> Did:
    """At the first attempt, keep the interpreter to itself in C code until the pipe is opened."""
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")  # a step of its own for each attempt
    if ctx.attempt == 1:
        ctypes.PyDLL(None).open(given.gate.encode(), os.O_RDONLY)
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=Retry(attempts=2, base=0.05, cap=0.1))
async def exit_process(ctx: Context, given: Told) -> Did:
    """End the process."""
    mark(given.marks)
    os._exit(7)
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def step_then_wait(ctx: Context, given: Told) -> Did:
    """Wait after a step."""
    await ctx.step("count", lambda: mark(given.marks))
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")  # a step of its own for each attempt
    await seen(given.gate)
    return did(ctx)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW)
async def wait_in_step(ctx: Context, given: Told) -> Did:
    """Wait in the middle of a step."""

    async def count() -> int:
        mark(given.marks)
        await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")  # a step of its own for each attempt
        await seen(given.gate)
        return os.getpid()

    await ctx.step("count", count)
    return did(ctx)

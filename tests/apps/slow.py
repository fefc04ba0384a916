"""A job that waits for a file to appear, and one that proposes an effect: for tests that kill processes."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from deedbox import App, Context, Retry, allow

app = App()


class Wait(BaseModel):
    """Which file to wait for."""

    gate: str


class Waited(BaseModel):
    """Which process saw it."""

    pid: int


@app.action(roles=["operator"], policy=allow(), key="new", retry=Retry(attempts=4, base=0.05, cap=0.1))
async def wait_for(ctx: Context, given: Wait) -> Waited:
    """Wait for a file."""
    await ctx.progress(ctx.attempt, ctx.attempt, f"pid {os.getpid()}")  # a step of its own for each attempt
    while not Path(given.gate).exists():  # noqa: ASYNC110, ASYNC240 -- another process makes the file
        await asyncio.sleep(0.02)
    return Waited(pid=os.getpid())

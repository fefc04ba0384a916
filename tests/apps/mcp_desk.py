"""Tools for clients that drive real processes: one that is quick, and one that waits for a file to appear."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from deedbox import ActionFailure, App, Context, Retry, allow

app = App()
Text = Annotated[str, Field(max_length=400)]


class Note(BaseModel):
    """What is noted."""

    model_config = ConfigDict(extra="forbid")
    text: Text


class Wait(BaseModel):
    """Which file to wait for."""

    model_config = ConfigDict(extra="forbid")
    gate: Text


class Told(BaseModel):
    """What came of it, and in which process."""

    text: Text
    pid: int


@app.action(roles=["operator"], policy=allow(), tool=True)
async def note_thing(ctx: Context, note: Note) -> Told:
    """Note a thing."""
    await ctx.progress(1, 1, "noted")
    if note.text == "nobody":
        raise ActionFailure("caller_error", "customer_not_found", "There is no such customer.")
    return Told(text=note.text, pid=os.getpid())


@app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=4, base=0.05, cap=0.1), tool=True)
async def watch_gate(ctx: Context, given: Wait) -> Told:
    """Wait for a file, and say when it was there."""
    await ctx.progress(ctx.attempt, 9, f"pid {os.getpid()}")
    await ctx.partial({"seen": False})
    gate, mark = Path(given.gate), Path(f"{given.gate}.{os.getpid()}")
    mark.touch()  # noqa: ASYNC240 -- a test reads it
    try:
        while not gate.exists():  # noqa: ASYNC110, ASYNC240 -- another process makes the file
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        Path(f"{given.gate}.stopped").touch()  # noqa: ASYNC240 -- likewise
        raise
    return Told(text="seen", pid=os.getpid())

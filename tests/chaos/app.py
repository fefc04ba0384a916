"""What runs during the chaos: work with steps, work that fails some attempts, and effects at three kinds of target."""

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from deedbox import ActionFailure, App, Context, Http, Retry, allow, hold

app = App(connectors=[Http()])
Target = Literal["keyed", "searchable", "blind"]
_RETRY = Retry(attempts=5, base=0.1, cap=1)


class Piece(BaseModel):
    """A numbered piece of work, how long it takes in seconds, and how many attempts are to fail."""

    number: int
    pause_s: float = 0.0
    fails: int = 0
    targets: list[Target] = Field(default_factory=list[Target], max_length=3)


class Done(BaseModel):
    """The number, handed back."""

    number: int


@app.action(roles=["operator"], policy=allow(), retry=_RETRY)
async def work_piece(ctx: Context, piece: Piece) -> Done:
    """Use the database in the middle of an attempt: a step before the pause, a report and a step after it."""
    number = await ctx.step("read", lambda: piece.number)
    await asyncio.sleep(piece.pause_s)
    await ctx.progress(1, 2, "half of it")
    return Done(number=await ctx.step("write", lambda: number))


@app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=2, base=0.1, cap=1))
async def try_piece(ctx: Context, piece: Piece) -> Done:
    """Fail the first attempts, so that some jobs are parked until they are taken up."""
    await asyncio.sleep(piece.pause_s)
    if ctx.attempt <= piece.fails:
        raise ActionFailure("overloaded", "not_yet", "It was told to fail this attempt.")
    return Done(number=piece.number)


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h"), retry=_RETRY)
async def post_piece(ctx: Context, piece: Piece) -> Done:
    """Propose one note for each target named."""
    number = await ctx.step("read", lambda: piece.number)
    await asyncio.sleep(piece.pause_s)
    for place, target in enumerate(piece.targets):
        slot = f"note-{place}"
        ctx.effect("http", target=target, slot=slot, payload={"path": "/notes", "body": {"number": number, "slot": slot}})
    return Done(number=number)

"""What runs during the chaos: work with steps, work that fails some attempts, and effects at three kinds of target.

Everything that is handed back says which attempt made it, so that an outcome which is not the holder's own is seen.
"""

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from deedbox import ActionFailure, App, Context, Http, Retry, allow, hold
from deedbox.store import rounds

app = App(connectors=[Http()])
Target = Literal["keyed", "searchable", "blind"]
_RETRY = Retry(attempts=5, base=0.1, cap=1)

# A parked job is taken up by its caller's delivery after a minute; a run has not so much time.
rounds.SHORTEST_WAIT_S = 2.0


class Piece(BaseModel):
    """A numbered piece of work, how long it takes in seconds, and how many attempts are to fail.

    A `quiet` one does not speak to the database between its pause and its end: an attempt that has lost its lease and does not
    know it comes to that end.
    """

    number: int
    pause_s: float = 0.0
    quiet: bool = False
    fails: int = 0
    targets: list[Target] = Field(default_factory=list[Target], max_length=3)


class Done(BaseModel):
    """The number, handed back by which attempt."""

    number: int
    attempt: int


@app.action(roles=["operator"], policy=allow(), retry=_RETRY)
async def work_piece(ctx: Context, piece: Piece) -> Done:
    """Use the database in the middle of an attempt: a step before the pause, a report and a step after it."""
    number = await ctx.step("read", lambda: piece.number)
    await asyncio.sleep(piece.pause_s)
    if piece.quiet:
        return Done(number=number, attempt=ctx.attempt)
    await ctx.progress(1, 2, "half of it")
    return Done(number=await ctx.step("write", lambda: number), attempt=ctx.attempt)


@app.action(roles=["operator"], policy=allow(), retry=Retry(attempts=2, base=0.1, cap=1))
async def try_piece(ctx: Context, piece: Piece) -> Done:
    """Fail the first attempts, so that some jobs are parked until somebody decides about them."""
    await asyncio.sleep(piece.pause_s)
    if ctx.attempt <= piece.fails:
        raise ActionFailure("overloaded", "not_yet", "It was told to fail this attempt.")
    return Done(number=piece.number, attempt=ctx.attempt)


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h"), retry=_RETRY)
async def post_piece(ctx: Context, piece: Piece) -> Done:
    """Propose one note for each target named."""
    return await _post(ctx, piece)


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h", quorum=2), retry=_RETRY)
async def post_twice(ctx: Context, piece: Piece) -> Done:
    """The same, for two people to approve."""
    return await _post(ctx, piece)


async def _post(ctx: Context, piece: Piece) -> Done:
    number = await ctx.step("read", lambda: piece.number)
    await asyncio.sleep(piece.pause_s)
    for place, target in enumerate(piece.targets):
        slot = f"note-{place}"
        ctx.effect("http", target=target, slot=slot, payload={"path": "/notes", "body": {"number": number, "slot": slot}})
    return Done(number=number, attempt=ctx.attempt)

"""What runs during a fail-over: a job with a step and a progress report, and one whose effect waits for a person."""

import asyncio

from pydantic import BaseModel

from deedbox import App, Context, Http, Retry, allow, hold

app = App(connectors=[Http()])
_RETRY = Retry(attempts=50, base=0.2, cap=2)


class Piece(BaseModel):
    """A numbered piece of work and how long it takes, in seconds."""

    number: int
    pause_s: float = 0.0


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


@app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), retry=_RETRY)
async def post_piece(ctx: Context, piece: Piece) -> Done:
    """Propose one note at the provider."""
    ctx.effect("http", target="notes", slot="note", payload={"path": "/notes", "body": {"number": piece.number}})
    return Done(number=piece.number)

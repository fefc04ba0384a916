"""An action whose agent calls others: one that only reads and leaves a mark, and one whose effect a person decides."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from deedbox import AgentLimits, App, Context, Retry, ToolPending, allow, hold
from tests.builders import ScriptedConnector

Short = Annotated[str, Field(max_length=200)]
FEW = Retry(attempts=4, base=0.05, cap=0.1)

note = ScriptedConnector()
app = App(connectors=[note])


class Question(BaseModel):
    """What the customer wants to know, and how the agent is bounded."""

    text: Short = "Where is order 4711?"
    marks: Short = ""
    tool_calls: int = 20
    requests: int = 12
    cost: Short = ""
    wait_s: float = 10.0
    tools: list[Short] = Field(default_factory=lambda: ["count_order", "send_note"], max_length=5)
    catches: bool = False
    fails: int = 0
    draft: bool = False


class Answer(BaseModel):
    """What the customer is told."""

    text: Short
    done: bool = False


class Order(BaseModel):
    """Which order."""

    order_id: str = Field(min_length=2, max_length=40)
    marks: Short = ""


class Found(BaseModel):
    """How it stands."""

    state: Short


class Note(BaseModel):
    """What is noted."""

    text: str = Field(min_length=1, max_length=200)


@app.action(roles=["operator"], policy=allow(), key="new", retry=FEW, tool=False)
async def answer_customer(ctx: Context, given: Question) -> Answer:
    """Answer a customer."""
    limits = AgentLimits(
        requests=given.requests,
        tool_calls=given.tool_calls,
        cost=Decimal(given.cost) if given.cost else None,
        tool_wait_s=given.wait_s,
    )
    try:
        answer = await ctx.agent(Answer, given.text, tools=given.tools, limits=limits, draft=given.draft)
    except ToolPending as pending:
        if not given.catches:
            raise
        return Answer(text=f"Waits for {pending.calls[0].action}.")
    if ctx.attempt <= given.fails:
        raise ValueError if given.fails < 0 else _busy()
    return answer


def _ask_below(number: int) -> None:
    """An agent whose only tool is the agent of the next number."""

    async def ask(ctx: Context, given: Note) -> Answer:
        """Ask somebody below."""
        return await ctx.agent(Answer, given.text, tools=[f"ask_{number + 1}"], limits=AgentLimits(tool_wait_s=60))

    ask.__name__ = f"ask_{number}"
    app.action(roles=["operator"], policy=allow(), retry=FEW, tool=True)(ask)


for _number in range(1, 7):
    _ask_below(_number)


def _busy() -> Exception:
    from deedbox import ActionFailure

    return ActionFailure("overloaded", "crm_busy", "The CRM is busy.")


@app.action(roles=["operator"], policy=allow(), consequence="read", tool=True, retry=FEW)
async def count_order(ctx: Context, order: Order) -> Found:
    """Say how an order stands."""
    if order.marks:
        with Path(order.marks).open("a") as file:  # noqa: ASYNC230 -- a line for a test
            file.write(f"{os.getpid()} {ctx.attempt}\n")
    return Found(state="on its way")


@app.action(roles=["operator"], approvers=["manager"], policy=hold(), tool=True)
async def send_note(ctx: Context, given: Note) -> Found:
    """Send a note, once a person has agreed."""
    ctx.effect("note", target="desk", slot="note", payload={"text": given.text})
    return Found(state="noted")


@app.action(roles=["manager"], policy=allow(), tool=True)
async def close_account(_ctx: Context, given: Note) -> Found:
    """Close an account, which managers alone may."""
    return Found(state=f"closed {len(given.text)}")

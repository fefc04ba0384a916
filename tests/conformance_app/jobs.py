"""The suite's fixtures that are jobs: real actions, run by real workers, held and decided on the real road."""

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from deedbox import ActionFailure, App, Context, allow, hold
from tests.builders import ScriptedConnector

Text = Annotated[str, Field(max_length=200)]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Nothing(Closed):
    pass


class Work(Closed):
    seconds: float = Field(default=0, ge=0, le=120)
    label: Text = ""


class File(Closed):
    filename: Text = ""


class Named(Closed):
    user_name: Text = ""


class Said(Closed):
    text: Text = ""


def app() -> App:
    """The actions."""
    desk = App(connectors=[ScriptedConnector()])

    @desk.action(roles=["operator"], policy=allow(), key="new", tool=True)
    async def slow_compute(ctx: Context, work: Work) -> Said:
        """Compute something slowly."""
        await ctx.progress(1, 2, work.label)
        await asyncio.sleep(work.seconds)
        return Said(text=f"computed {work.label}")

    @desk.action(roles=["operator"], policy=allow(), key="new", tool=True, task_error=True)
    async def fail_always(_ctx: Context, _nothing: Nothing) -> Said:
        """Fail after a second."""
        await asyncio.sleep(1)
        raise ActionFailure("caller_error", "always_fails", "It never works.")

    @desk.action(roles=["operator"], policy=allow(), key="new", tool=True)
    async def protocol_error_job(_ctx: Context, _nothing: Nothing) -> Said:
        """Break."""
        raise RuntimeError("the inside of things")

    @desk.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), key="new", tool=True)
    async def confirm_delete(ctx: Context, file: File) -> Said:
        """Delete a file once a person has said yes."""
        ctx.effect("note", target="disk", slot="delete", payload={"filename": file.filename})
        return Said(text=f"deleted {file.filename}")

    @desk.action(roles=["operator"], approvers=["manager"], policy=hold(expires="1h"), key="new", tool=True)
    async def multi_input(ctx: Context, _nothing: Nothing) -> Said:
        """Do two things once a person has said yes to each."""
        for slot in ("first", "second"):
            ctx.effect("note", target="desk", slot=slot, group=slot, payload={"text": slot})
        return Said(text="both")

    @desk.action(roles=["operator"], policy=allow(), key="new", tool=True, object_id="user_name")
    async def finish_task(_ctx: Context, named: Named) -> Named:
        """Finish what began with a question."""
        return named

    return desk

"""An application that does with sensitive values whatever a careless handler or provider might, started as a real process."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from deedbox import ActionFailure, App, Context, Sensitive
from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, LookUp, Outcome, Receipt
from deedbox.telemetry import log


class Patient(BaseModel):
    """Whom it is about; how they are is sensitive."""

    name: str = Field(max_length=100)
    diagnosis: Annotated[str, Sensitive()] = Field(max_length=200)


class Ask(BaseModel):
    """What is to be done with it."""

    patient: Patient
    how: str = Field(default="well", max_length=20)


class Letter(BaseModel):
    """What comes of it."""

    salutation: str
    finding: str = Field(json_schema_extra={"sensitive": True})


class Post(BaseModel):
    """What the connector sends; one field is marked, and the other is made from something that is."""

    code: Annotated[str, Sensitive()]
    text: str


class Pillar:
    """A connector whose provider repeats what it was given, and which puts it into its errors."""

    name = "pillar"
    payload_model: type[BaseModel] = Post

    def check_target(self, target: str) -> None:
        """Any target."""

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Any payload."""

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """A sentence that tells too much."""
        return f"Posts {payload['code']} and {payload['text']} to {target}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Blind."""
        return "blind"

    async def send(self, order: EffectOrder) -> Outcome:
        """Accept it and repeat it, or fail and repeat it."""
        if order.target == "rough":
            raise RuntimeError(f"cannot post {order.payload['code']}")
        if order.target == "lost":
            return Ambiguous("lost", f"lost {order.payload['code']} on the way", "body")
        return Receipt("POST-1", {"echo": dict(order.payload)})

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """Not asked here."""
        return LookUp("still_unknown")


app = App(connectors=[Pillar()])


@app.action(roles=["operator"], approvers=["manager"], key="new", mask=["patient.name"])
async def write_letter(ctx: Context, ask: Ask) -> Letter:
    """Write a letter and post it."""
    told = ask.patient.diagnosis
    log("handler").warning("reading", what=f"the diagnosis is {told}", password="not for a log")
    await ctx.progress(1, 2, f"reading {told}")
    await ctx.partial(Letter(salutation="Dear patient", finding=told))
    await ctx.partial({"salutation": f"Dear patient with {told}", "finding": told})
    if ask.how == "fails":
        raise ActionFailure("caller_error", "cannot_read", f"cannot read {told}")
    if ask.how == "breaks":
        raise ValueError(f"no code for {told}")
    ctx.effect("pillar", target=ask.how, slot="post", payload={"code": f"C-{told}", "text": f"About {told}."})
    return Letter(salutation="Dear patient", finding=f"It is {told}.")

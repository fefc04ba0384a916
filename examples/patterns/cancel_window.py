"""Act with a cancel window: what may leave by itself waits ten minutes first, in which anybody who operates can cancel it."""

from pydantic import BaseModel, Field

from deedbox import App, Context, Evidence, Grounds, Http, HttpCall, Rule, rules

app = App(connectors=[Http()])


class Call(BaseModel):
    """A note that somebody dictated after a call."""

    customer: str = Field(max_length=40)
    note: str = Field(max_length=2000)


class Kept(BaseModel):
    """What is to be kept, and how sure the model was that it belongs to this customer."""

    note: str
    confidence: float = 1.0


POLICY = rules(
    # A model's doubt may hold; its confidence lets nothing out.
    Rule("doubtful", "hold", "model.confidence < 0.9"),
    Rule(
        "note_of_a_call",
        "delay",
        "connector == 'http' && target == 'crm' && payload.method == 'POST' && effects == 1",
        Grounds(
            reversible=True,
            evidence=Evidence("200 calls of spring, read by two people", "2026-05-14", 0.985),
            threshold=0.95,
            approved_by="head of sales",
            valid_until="2027-06-30T00:00:00Z",
            per_day=500,
        ),
        window="10m",
    ),
)


@app.action(roles=["operator"], approvers=["manager"], policy=POLICY)
async def keep_note(ctx: Context, call: Call) -> Kept:
    """Keep a note of a call with the customer."""
    note = HttpCall(path="/notes", body={"customer": call.customer, "text": call.note})
    ctx.effect("http", target="crm", slot="note", payload=note)
    return Kept(note=call.note)

"""Approve by exception: what is eligible leaves at once, a person looks at one in twenty, and if they disagree it all waits."""

from pydantic import BaseModel, Field

from deedbox import App, Context, Evidence, Facts, Grounds, Http, HttpCall, Rule, rules

app = App(connectors=[Http()])


class Ticket(BaseModel):
    """A ticket that a model has sorted."""

    ticket: str = Field(max_length=40)
    queue: str = Field(max_length=40)


class Sorted(BaseModel):
    """Where it goes."""

    queue: str


def one_of_ours(facts: Facts) -> bool:
    """Whether it goes to a queue that can send it on."""
    return facts.target == "crm" and facts.payload["body"]["queue"] in {"billing", "delivery", "returns"}


POLICY = rules(
    Rule("legal_is_for_people", "deny", "payload.path.startsWith('/legal')"),
    Rule(
        "sorted_tickets",
        "sample",
        one_of_ours,
        Grounds(
            reversible=True,
            evidence=Evidence("1,000 tickets of March", "2026-04-02", 0.97),
            threshold=0.93,
            approved_by="head of support",
            valid_until="2027-03-31T00:00:00Z",
            per_day=2000,
        ),
        version=1,
        share=0.05,
    ),
)


@app.action(roles=["operator"], approvers=["manager"], policy=POLICY)
async def sort_ticket(ctx: Context, ticket: Ticket) -> Sorted:
    """Put a ticket into its queue."""
    call = HttpCall(path="/tickets", body={"ticket": ticket.ticket, "queue": ticket.queue})
    ctx.effect("http", target="crm", slot="queue", payload=call)
    return Sorted(queue=ticket.queue)

"""The sales desk's tools: `deedbox serve examples.sales_desk.app:app`.

Who may call what, by role; what acts waits for a manager's yes, whoever asked for it:

| tool | viewer | operator | manager |
|---|---|---|---|
| `find_customer_by_email` `get_order_status` | reads | reads | reads |
| `create_lead` `create_support_ticket` `draft_customer_reply` | | asks | asks |
| `update_deal_stage` | | | asks |
"""

from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from deedbox import ActionFailure, App, Context, Http, HttpCall, Retry, Sensitive, allow, hold

app = App(connectors=[Http()])

RETRY = Retry(attempts=4, base="500ms", cap="5s")
Email = Annotated[str, Field(min_length=3, max_length=254, pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")]
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[A-Za-z0-9_-]+$")]
Stage = Literal["new", "qualified", "offer", "won", "lost"]


class Closed(BaseModel):
    """Takes what it names and nothing else."""

    model_config = ConfigDict(extra="forbid")


class CustomerQuery(Closed):
    """Whom to look for, and how much to tell."""

    email: Email
    detail: Literal["name", "full"] = "name"


class Customer(BaseModel):
    """A customer as the CRM knows it; `plan` and `phone` only in full."""

    id: Identifier
    name: Line
    language: Literal["en", "de"]
    plan: Line | None = None
    phone: Annotated[str | None, Field(max_length=40), Sensitive()] = None


class OrderQuery(Closed):
    """Which order, and how much to tell."""

    order_number: Identifier
    detail: Literal["state", "full"] = "state"


class OrderStatus(BaseModel):
    """How an order stands; `carrier` and `expected_on` only in full."""

    order_number: Identifier
    state: Literal["placed", "packed", "in_transit", "delivered", "canceled"]
    carrier: Line | None = None
    expected_on: Annotated[str | None, Field(max_length=10)] = None


class LeadRequest(Closed):
    """A lead as somebody wants it made."""

    name: Line
    email: Email
    company: Line
    source: Literal["web", "event", "referral", "call"]
    note: str = Field(default="", max_length=2000)


class LeadProposal(BaseModel):
    """The lead that was proposed; the CRM's own id stands in the receipt."""

    name: Line
    company: Line


class StageChange(Closed):
    """To which stage a deal is to be moved, and why."""

    deal_id: Identifier
    stage: Stage
    reason: str = Field(min_length=1, max_length=1000)


class StageProposal(BaseModel):
    """The move that was proposed, from where to where."""

    deal_id: Identifier
    from_stage: Stage
    to_stage: Stage


class TicketRequest(Closed):
    """A ticket that a customer needs."""

    customer_email: Email
    title: Line
    text: str = Field(min_length=1, max_length=6000)
    priority: Literal["low", "normal", "high"] = "normal"


class TicketProposal(BaseModel):
    """The ticket that was proposed."""

    customer_id: Identifier
    title: Line


class ReplyRequest(Closed):
    """What a customer is to be told, in the words of whoever asks."""

    customer_email: Email
    subject: Line
    points: list[Line] = Field(min_length=1, max_length=8)
    tone: Literal["plain", "warm", "formal"] = "plain"


class ReplyDraft(BaseModel):
    """The draft that was proposed; it is kept in the CRM and mailed to nobody."""

    customer_id: Identifier
    subject: Line
    text: str = Field(max_length=4000)


@app.action(roles=["viewer", "operator", "manager"], policy=allow(), consequence="read", retry=RETRY, tool=True, object_id="id")
async def find_customer_by_email(ctx: Context, query: CustomerQuery) -> Customer:
    """Find the customer who has an e-mail address. Ends with CUSTOMER_NOT_FOUND where the CRM knows none."""
    row = await _customer_row(ctx, query.email)
    found = _as(Customer, row)
    return found if query.detail == "full" else found.model_copy(update={"plan": None, "phone": None})


@app.action(
    roles=["viewer", "operator", "manager"],
    policy=allow(),
    consequence="read",
    retry=RETRY,
    tool=True,
    object_id="order_number",
)
async def get_order_status(ctx: Context, query: OrderQuery) -> OrderStatus:
    """Say how an order stands. Ends with ORDER_NOT_FOUND where there is none of this number."""
    answer = await ctx.read("sales_crm", f"/orders?number={quote(query.order_number, safe='')}")
    rows = _rows(answer, "orders")
    if not rows:
        raise ActionFailure("caller_error", "order_not_found", "There is no order of this number.")
    found = _as(OrderStatus, rows[0])
    return found if query.detail == "full" else found.model_copy(update={"carrier": None, "expected_on": None})


@app.action(roles=["operator", "manager"], approvers=["manager"], policy=hold(), retry=RETRY, tool=True, data_subject="email")
async def create_lead(ctx: Context, lead: LeadRequest) -> LeadProposal:
    """Propose a lead in the CRM, with a note of where it came from. Ends with ALREADY_A_CUSTOMER where it is one."""
    if _rows(await ctx.read("sales_crm", f"/customers?email={quote(lead.email, safe='')}"), "customers"):
        raise ActionFailure("caller_error", "already_a_customer", "Somebody with this address is a customer already.")
    _write(ctx, "lead", "POST", "/leads", lead.model_dump(mode="json", exclude={"note"}))
    _note(ctx, "lead", lead.email, lead.note or f"Came by {lead.source}.")
    return LeadProposal(name=lead.name, company=lead.company)


@app.action(roles=["manager"], approvers=["manager"], policy=hold(), retry=RETRY, tool=True)
async def update_deal_stage(ctx: Context, change: StageChange) -> StageProposal:
    """Propose to move a deal to another stage, with the reason as a note. Ends with DEAL_NOT_FOUND or DEAL_ALREADY_THERE."""
    rows = _rows(await ctx.read("sales_crm", f"/deals?id={quote(change.deal_id, safe='')}"), "deals")
    if not rows:
        raise ActionFailure("caller_error", "deal_not_found", "There is no deal of this id.")
    stage: Stage = _as(Deal, rows[0]).stage
    if stage == change.stage:
        raise ActionFailure("caller_error", "deal_already_there", f"The deal is at the stage {stage} already.")
    _write(ctx, "stage", "PATCH", f"/deals/{change.deal_id}", {"stage": change.stage})
    _note(ctx, "stage", change.deal_id, change.reason)
    return StageProposal(deal_id=change.deal_id, from_stage=stage, to_stage=change.stage)


@app.action(
    roles=["operator", "manager"],
    approvers=["manager"],
    policy=hold(),
    retry=RETRY,
    tool=True,
    data_subject="customer_email",
)
async def create_support_ticket(ctx: Context, ticket: TicketRequest) -> TicketProposal:
    """Propose a support ticket for a customer, with a note on the customer. Ends with CUSTOMER_NOT_FOUND."""
    customer = _as(Customer, await _customer_row(ctx, ticket.customer_email))
    body = ticket.model_dump(mode="json", exclude={"customer_email"}) | {"customer_id": customer.id}
    _write(ctx, "ticket", "POST", "/tickets", body)
    _note(ctx, "ticket", customer.id, f"A ticket was asked for: {ticket.title}")
    return TicketProposal(customer_id=customer.id, title=ticket.title)


@app.action(
    roles=["operator", "manager"],
    approvers=["manager"],
    policy=hold(),
    retry=RETRY,
    tool=True,
    consequence="reversible",
    data_subject="customer_email",
)
async def draft_customer_reply(ctx: Context, reply: ReplyRequest) -> ReplyDraft:
    """Propose the draft of a reply, kept in the CRM with a note; it mails nobody. Ends with CUSTOMER_NOT_FOUND."""
    customer = _as(Customer, await _customer_row(ctx, reply.customer_email))
    text = _letter(customer, reply)
    _write(ctx, "draft", "POST", "/drafts", {"customer_id": customer.id, "subject": reply.subject, "text": text})
    _note(ctx, "draft", customer.id, f"A reply was drafted: {reply.subject}")
    return ReplyDraft(customer_id=customer.id, subject=reply.subject, text=text)


class Deal(BaseModel):
    """What is needed of a deal."""

    id: Identifier
    stage: Stage


def _letter(customer: Customer, reply: ReplyRequest) -> str:
    greeting = {"plain": "Hello", "warm": "Dear", "formal": "Dear"}[reply.tone]
    points = "\n".join(f"- {point}" for point in reply.points)
    return f"{greeting} {customer.name},\n\n{points}\n\nKind regards"


async def _customer_row(ctx: Context, address: str) -> Any:
    answer = await ctx.read("sales_crm", f"/customers?email={quote(address, safe='')}")
    rows = _rows(answer, "customers")
    if not rows:
        raise ActionFailure("caller_error", "customer_not_found", "The CRM knows no customer with this address.")
    return rows[0]


def _rows(answer: Any, name: str) -> list[Any]:
    """The rows of the CRM's answer. Half an answer is none: nothing is concluded from what is not there."""
    rows = cast("dict[str, Any]", answer).get(name) if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ActionFailure("invalid_output", "half_an_answer", "The CRM's answer was not whole.")
    return cast("list[Any]", rows)


def _as(model: type[Any], row: Any) -> Any:
    try:
        return model.model_validate(row)
    except ValidationError as error:
        raise ActionFailure("invalid_output", "half_an_answer", "The CRM's answer was not whole.") from error


def _write(ctx: Context, slot: str, method: Literal["POST", "PATCH"], path: str, body: dict[str, JsonValue]) -> None:
    ctx.effect("http", target="sales_crm", slot=slot, payload=HttpCall(method=method, path=path, body=body))


def _note(ctx: Context, after: str, about: str, text: str) -> None:
    """A note beside what is done: decided by itself, and never before that is done."""
    body: dict[str, JsonValue] = {"about": about, "text": text}
    call = HttpCall(method="POST", path="/notes", body=body)
    ctx.effect("http", target="sales_crm", slot="note", group="note", after=after, payload=call)

"""The support desk's actions: `deedbox serve examples.support_desk.app:app`.

Two of them propose effects and wait for a person: `draft_customer_reply` and `create_support_ticket`. The other two have
no effects and are there to be watched: `slow_report` takes its time, `always_fails` fails with a code of its own.
"""

import asyncio
import math
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from deedbox import Abstain, ActionFailure, App, Context, Document, Email, Http, HttpCall, Retry, Smtp, allow, hold
from examples.support_desk.draft import Category, Draft, Reply, Urgency
from examples.support_desk.drafter import INSTRUCTIONS, draft_by_rules, finished, prompt_for
from examples.support_desk.reading import Reading, UnreadableDocumentError, read_document

app = App(connectors=[Smtp(), Http()])


class Mail(BaseModel):
    """A customer's document; `sender` is who handed it in, where the caller knows better than the document says."""

    model_config = ConfigDict(extra="forbid")
    file: Document
    sender: str | None = Field(default=None, min_length=3, max_length=254, pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")


class Customer(BaseModel):
    """A customer as the CRM knows it."""

    id: str = Field(max_length=60)
    email: str = Field(max_length=254)
    name: str = Field(max_length=200)
    language: Literal["en", "de"]


class TicketRequest(BaseModel):
    """A ticket that someone wants opened for a customer."""

    model_config = ConfigDict(extra="forbid")
    customer_email: str = Field(min_length=3, max_length=254, pattern=r"^[^\s@<>,]+@[^\s@<>,]+$")
    title: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    text: str = Field(min_length=1, max_length=6000)
    category: Category = "other"
    priority: Urgency = "normal"


class TicketProposal(BaseModel):
    """The ticket that was proposed; the CRM's own number stands in the effect's receipt."""

    customer: Customer
    title: str = Field(max_length=200)
    priority: Urgency


class ReportRequest(BaseModel):
    """How long the report shall take, in seconds, and the document it is about, if any."""

    model_config = ConfigDict(extra="forbid")
    seconds: float = Field(default=5, ge=0, le=600, allow_inf_nan=False)
    document: Document | None = None


class Report(BaseModel):
    """Figures on a document, with the link to it; zero and None where there was none."""

    steps: int
    kind: str = Field(max_length=40)
    words: int
    letters: int
    source: str | None = Field(default=None, max_length=2048)


class FailureRequest(BaseModel):
    """The reason to fail with."""

    model_config = ConfigDict(extra="forbid")
    reason: str = Field(default="asked to", min_length=1, max_length=200)


class Nothing(BaseModel):
    """The output of an action that never has one."""


@app.action(version=1, roles=["operator"], approvers=["manager"], policy=hold(expires="24h"), retry=Retry(attempts=5))
async def draft_customer_reply(ctx: Context, mail: Mail) -> Draft | Abstain:
    """Draft a reply to a customer's e-mail, PDF or text, and propose to send it and to note it in the CRM."""
    reading = await _read(ctx, mail.file)
    sender = mail.sender or reading.sender
    if not sender:
        return Abstain("The document does not say who sent it.")
    customer = await _customer(ctx, sender)
    if customer is None:
        return Abstain(f"The CRM knows no customer with the address {sender}.")
    await ctx.progress(1, 2, "read the document and found the customer")

    async def write() -> Draft:
        if not ctx.has_model:
            return draft_by_rules(reading, customer.name)
        reply = await ctx.model(Reply, prompt_for(reading, customer.name), instructions=INSTRUCTIONS)
        return finished(reply, reading, drafted_by_model=True)

    draft = Draft.model_validate(await ctx.step("draft", write, given=[mail.file.sha256, customer.id]))
    await ctx.partial(draft)
    ctx.effect(
        "smtp",
        target=customer.email,
        slot="reply",
        payload=Email(to=customer.email, subject=draft.subject, body=draft.body),
    )
    note: dict[str, JsonValue] = {"customer_email": customer.email, "text": _note(draft), "source": mail.file.name}
    ctx.effect("http", target="crm", slot="note", payload=HttpCall(method="POST", path="/notes", body=note))
    await ctx.progress(2, 2, "drafted the reply")
    return draft


@app.action(version=1, roles=["operator"], approvers=["manager"], policy=hold(expires="24h"), retry=Retry(attempts=5))
async def create_support_ticket(ctx: Context, ticket: TicketRequest) -> TicketProposal:
    """Propose a ticket in the CRM for a customer it knows."""
    customer = await _customer(ctx, ticket.customer_email)
    if customer is None:
        raise ActionFailure("caller_error", "customer_not_found", "The CRM knows no customer with this address.")
    body: dict[str, JsonValue] = ticket.model_dump(mode="json") | {"customer_email": customer.email}
    ctx.effect("http", target="crm", slot="ticket", payload=HttpCall(method="POST", path="/tickets", body=body))
    return TicketProposal(customer=customer, title=ticket.title, priority=ticket.priority)


@app.action(version=1, roles=["operator"], policy=allow(), retry=Retry(attempts=5, base="100ms"), key="new")
async def slow_report(ctx: Context, request: ReportRequest) -> Report:
    """Count a document's words, slowly and in visible steps; has no effects."""
    document = request.document
    kind, words, letters = "nothing", 0, 0
    if document is not None:
        reading = await _read(ctx, document)
        kind, words, letters = reading.kind, len(reading.text.split()), len(reading.text)
    total = max(1, min(100, math.ceil(request.seconds * 2)))
    for step in range(1, total + 1):
        await asyncio.sleep(request.seconds / total)
        await ctx.progress(step, total, f"part {step} of {total}")
    source = None if document is None else document.url
    return Report(steps=total, kind=kind, words=words, letters=letters, source=source)


@app.action(version=1, roles=["operator"], policy=allow(), key="new")
async def always_fails(ctx: Context, request: FailureRequest) -> Nothing:
    """Fail at once and for good, with the code `demo_failure`; has no effects."""
    await ctx.progress(0, 1, "about to fail")
    raise ActionFailure("caller_error", "demo_failure", f"This action always fails: {request.reason}.")


async def _read(ctx: Context, document: Document) -> Reading:
    """The document's text, read in a thread because a large PDF takes a while. Raises ActionFailure where it has none."""
    content = await ctx.document(document)
    try:
        return await asyncio.to_thread(read_document, content, name=document.name, media_type=document.media_type)
    except UnreadableDocumentError as error:
        raise ActionFailure("caller_error", "unreadable_document", str(error)) from error


async def _customer(ctx: Context, address: str) -> Customer | None:
    answer = await ctx.read("crm", f"/customers?email={quote(address, safe='')}")
    found = answer["customers"]
    return Customer.model_validate(found[0]) if found else None


def _note(draft: Draft) -> str:
    facts = "; ".join(f"{fact.name} {fact.value}" for fact in draft.facts)
    head = f"Reply approved for sending. Category {draft.category}, urgency {draft.urgency}, drafted by {draft.drafted_by}."
    return f"{head}\nFrom the document: {facts or 'no numbers'}.\nSubject: {draft.subject}"

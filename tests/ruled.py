"""An application whose gate goes by rules, and grounds that hold, for tests of the gate and of what stands on it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from deedbox.extend.connector import Capability, EffectOrder, LookUp, Outcome, Receipt
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.gate.decide import decide
from deedbox.model.facts import EffectKind
from deedbox.model.policy import Policy, rules
from deedbox.model.rules import Evidence, Grounds, Rule
from tests.database import TestDatabase
from tests.road import Road


class Want(BaseModel):
    """One effect to propose."""

    slot: str = "one"
    group: str = "default"
    amount: int = 5
    to: list[str] = Field(default_factory=list[str])
    vip: Any = None
    kind: EffectKind | None = None
    after: str | None = None


class Refunds(BaseModel):
    """What to propose, and what the model is made to say of it."""

    wants: list[Want] = Field(default_factory=lambda: [Want()])
    score: float = 0.9
    iban: str | None = Field(default=None, json_schema_extra={"sensitive": True})


class Draft(BaseModel):
    """The draft, with what a model judged."""

    text: str = "drafted"
    score: float = 0.9


class Money(BaseModel):
    """What the connector is given."""

    amount: int
    to: list[str] = Field(default_factory=list[str])
    vip: Any = None
    confidence: float | None = None
    note: str | None = Field(default=None, json_schema_extra={"sensitive": True})
    guess: float | None = Field(default=None, json_schema_extra={"judgement": True})


class Bank:
    """A connector that writes down what it performed."""

    name = "bank"
    payload_model: type[BaseModel] = Money
    kind: EffectKind = "record"

    def __init__(self) -> None:
        self.sent: list[str] = []

    def check_target(self, target: str) -> None:
        """Any target."""

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Any payload."""

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """One sentence."""
        return f"Pays {payload['amount']} to {target}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Blind."""
        return "blind"

    async def send(self, order: EffectOrder) -> Outcome:
        """Write it down."""
        self.sent.append(order.slot)
        return Receipt(order.effect_id)

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """Not asked here."""
        return LookUp("still_unknown")


def grounds(**changes: Any) -> Grounds:
    """Grounds that hold, with changes."""
    good: dict[str, Any] = {
        "reversible": True,
        "evidence": Evidence("refunds of spring", "2026-05-14", 0.99),
        "threshold": 0.9,
        "approved_by": "head of support",
        "valid_until": "2999-01-01T00:00:00Z",
        "per_day": 100,
    }
    return Grounds(**{**good, **changes})


def small(verdict: str = "allow", **changes: Any) -> Rule:
    """A rule for small amounts."""
    given: dict[str, Any] = {"grounds": grounds(), **changes}
    return Rule("small", verdict, "payload.amount <= 20", **given)  # pyright: ignore[reportArgumentType] -- tests misspell it


def app_with(policy: Policy | None = None, **more: Any) -> App:
    """One action that proposes refunds through the bank."""
    made = App(connectors=[Bank()])
    given: dict[str, Any] = {"approvers": ["manager"], "policy": policy or rules(small()), **more}

    @made.action(roles=["operator", "manager"], **given)
    async def refund_customer(ctx: Context, given: Refunds) -> Draft:
        for want in given.wants:
            ctx.effect(
                "bank",
                target="till",
                slot=want.slot,
                payload={"amount": want.amount, "to": want.to, "vip": want.vip},
                group=want.group,
                after=want.after,
                kind=want.kind,
            )
        return Draft(score=given.score)

    return made


def bank_of(made: App) -> Bank:
    """The app's bank."""
    found = made.connectors["bank"]
    assert isinstance(found, Bank)
    return found


async def ask(one: Road, *wants: Want, key: str = "k", **more: Any) -> UUID:
    """Submit, run until the gate has spoken, and return the job."""
    body = Refunds(wants=list(wants) or [Want()], **more)
    job = await one.submit("refund_customer", body.model_dump(mode="json"), key)
    if not one.loops:
        one.start(one.worker())
    await one.until(job.job_id, "awaiting_human", "dispatching", "failed_terminal", "completed", "canceled")
    return job.job_id


async def said(database: TestDatabase, job_id: UUID) -> dict[str, tuple[str, str]]:
    """Decision and rule by group."""
    rows = await database.rows("SELECT group_name, decision, rule FROM deedbox.verdict WHERE job_id = %s", job_id)
    return {str(group): (str(decision), str(rule)) for group, decision, rule in rows}


async def approvals(one: Road, job_id: UUID, purpose: str = "effects") -> dict[str, tuple[UUID, str]]:
    """Id and digest of the job's approvals by group."""
    rows = await one.database.rows(
        "SELECT group_name, approval_id, encode(digest, 'hex') FROM deedbox.approval WHERE job_id = %s AND purpose = %s",
        job_id,
        purpose,
    )
    return {str(group): (UUID(str(approval_id)), str(digest)) for group, approval_id, digest in rows}


async def say(one: Road, approval: tuple[UUID, str], choice: str = "approve") -> str:
    """Decide as the approver."""
    reason = "not this" if choice == "reject" else None
    ids = {"approval_id": approval[0], "digest_hex": approval[1]}
    done = await decide(one.pool, one.ids, one.approver, **ids, choice=choice, reason=reason, how="test")  # pyright: ignore[reportArgumentType]
    return done.state

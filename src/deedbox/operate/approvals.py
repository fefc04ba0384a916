"""Approvals for every door: the card, the inbox, the decision, and the link that leads to the page."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel

from deedbox.extend.action import Action
from deedbox.extend.connector import Connector
from deedbox.gate.decide import decide
from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Principal
from deedbox.operate.cards import (
    ApprovalCard,
    ApprovalLine,
    ApprovalState,
    Decision,
    DecisionResult,
    DoneBefore,
    EffectView,
    OriginalView,
    RepeatView,
    SourceLink,
    Validation,
    VoteLine,
)
from deedbox.operate.masking import NOTHING, Mask, mask_of
from deedbox.operate.rows import rows_of
from deedbox.store import cards, decision, rounds
from deedbox.store.ids import IdSource
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

ZONE = "UTC"
MOST_LINES = 200


class Approvals:
    """The approvals of one installation, as a principal may see and decide them."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        *,
        public_url: str,
        connectors: Mapping[str, Connector] | None = None,
        actions: Mapping[str, Action] | None = None,
    ) -> None:
        """Links are made from `public_url`, never from a request's Host.

        The models of `connectors` and `actions` say in which order payloads and drafts are read; what comes from one that is
        not there is shown in the order it is stored.
        """
        self._pool = pool
        self._ids = ids
        self._payloads = {name: connector.payload_model for name, connector in (connectors or {}).items()}
        self._drafts = {name: action.output_model for name, action in (actions or {}).items()}
        self._public_url = public_url.rstrip("/")

    async def card(self, tenant: str, approval_id: UUID, principal: Principal) -> ApprovalCard | None:
        """The card, or None for an approval that is unknown, of another tenant, or not for this principal's eyes."""
        async with autocommit(self._pool) as connection:
            row = await cards.card(connection, tenant, approval_id)
            if row is None or not _may_see(principal, row[22]):
                return None
            found = await cards.effects(connection, row[1], row[20], row[21]) if row[20] else []
            votes = await cards.votes(connection, approval_id)
            documents = await cards.documents(connection, row[1])
            again = await rounds.repeats(connection, approval_id)
            before = await rounds.before(connection, row[1])
            # Who decides, decides on exactly what is shown; to whoever else may look, what is sensitive is masked.
            mask = NOTHING if _decides(principal, tuple(row[12])) else await mask_of(connection, row[1])
        effects = tuple(_effect(effect, self._payloads.get(effect[0]), mask) for effect in found)
        sentences = tuple(effect[3] for effect in found) or ("Nothing is sent: the action abstained.",)
        draft = rows_of(mask.output(row[18]), self._drafts.get(row[2])) if row[18] is not None else ()
        return replace(
            _card(row, len(effects), votes, documents, principal),
            sentences=sentences,
            effects=effects,
            draft=draft,
            repeats=tuple(RepeatView(item.slot, item.state, item.effect_id, item.provider_id) for item in again),
            original=_original(before),
        )

    async def inbox(self, tenant: str, principal: Principal) -> list[ApprovalLine]:
        """The pending approvals this principal may see, the nearest deadline first."""
        async with autocommit(self._pool) as connection:
            rows = await cards.inbox(connection, tenant, MOST_LINES)
        return [
            ApprovalLine(
                approval_id=row[0],
                action=row[1],
                version=row[2],
                asked_by=row[3] or "someone who is gone",
                deadline=row[4],
                zone=ZONE,
                remaining_s=row[5],
                audience=tuple(row[6]),
                quorum=row[7],
                votes=row[8],
                sentences=tuple(row[10]),
                may_decide=_why_not(principal, tuple(row[6]), row[9], "pending", lapsed=False) is None,
            )
            for row in rows
            if _may_see(principal, row[9])
        ]

    async def decide(
        self,
        principal: Principal,
        approval_id: UUID,
        digest_hex: str,
        decision: Decision,
        reason: str | None,
        how: str,
        repeat: Sequence[str] = (),
    ) -> DecisionResult:
        """Decide exactly what `digest_hex` names; `repeat` are slots to be done a second time. See deedbox.gate.decide."""
        done = await decide(
            self._pool,
            self._ids,
            principal,
            approval_id=approval_id,
            digest_hex=digest_hex,
            choice=decision,
            reason=reason,
            how=how,
            repeat=repeat,
        )
        return DecisionResult(done.state, done.by, done.at, done.message)

    async def link(self, approval_id: UUID) -> str | None:
        """A link to the page: it shows who asks and leads to the login; it decides nothing. None when nothing is pending.

        The token is 256 random bits; only its SHA-256 is kept, and every decision voids it.
        """
        token = secrets.token_urlsafe(32)
        async with autocommit(self._pool) as connection:
            kept = await decision.mint_token(connection, approval_id, sha256(token.encode()))
        return f"{self._public_url}/approvals/{approval_id}?t={token}" if kept else None


def _may_see(principal: Principal, subject: UUID) -> bool:
    return str(subject) == principal.principal_id or (principal.kind == "person" and principal.may("read"))


def _why_not(principal: Principal, audience: tuple[str, ...], subject: UUID, state: str, *, lapsed: bool) -> str | None:
    if state != "pending":
        return f"It is {state} already."
    if lapsed:
        return "Its time is over."
    if principal.kind != "person":
        return "Only a person decides."
    if not principal.has_role(frozenset(audience)) or not principal.may("decide"):
        return f"Deciding this needs one of these roles: {', '.join(audience)}."
    if str(subject) == principal.principal_id:
        return "Whoever asked for it does not decide it."
    return None


def _original(before: list[rounds.Before]) -> OriginalView | None:
    if not before:
        return None
    done = tuple(
        DoneBefore(one.slot, one.connector or "", one.target or "", one.state or "", one.provider_id, one.at)
        for one in before
        if one.slot is not None
    )
    return OriginalView(before[0].job_id, before[0].job_state, done)


def _decides(principal: Principal, audience: tuple[str, ...]) -> bool:
    return principal.kind == "person" and principal.has_role(frozenset(audience)) and principal.may("decide")


def _effect(effect: tuple[Any, ...], model: type[BaseModel] | None, mask: Mask = NOTHING) -> EffectView:
    payload = mask.payload(effect[0], json.loads(bytes(effect[4]))["payload"])
    return EffectView(effect[0], effect[1], effect[2], rows_of(payload, model))


def _card(
    row: tuple[Any, ...],
    effects: int,
    votes: list[tuple[Any, ...]],
    documents: list[tuple[UUID, str]],
    principal: Principal,
) -> ApprovalCard:
    """The card without what leaves and the draft."""
    facts = cast("dict[str, Any]", row[19] or {})
    audience = tuple(row[12])
    why_not = _why_not(principal, audience, row[22], row[4], lapsed=row[23])
    abstained = facts.get("abstained")
    many = "all of it is sent" if effects != 1 else "it is sent"
    return ApprovalCard(
        approval_id=row[0],
        job_id=row[1],
        action=row[2],
        version=row[3],
        state=cast("ApprovalState", row[4]),
        digest_hex=bytes(row[5]).hex(),
        sentences=(),
        effects=(),
        key=row[6] if row[7] == "header" else None,
        asked_by=row[8] or "someone who is gone",
        why_asked=f"The action abstained: {abstained}"
        if abstained
        else "Every external effect of this action is decided by a person.",
        deadline=row[11],
        zone=ZONE,
        audience=audience,
        quorum=row[13],
        on_yes=f"Exactly what is shown here goes out: {many} once, as soon as the switch allows.",
        on_no="Nothing is sent; the job ends as rejected, with your reason.",
        on_silence="Nothing is sent; at the deadline the job ends as expired. Silence never approves.",
        may_decide=why_not is None,
        why_not=why_not,
        source_links=tuple(SourceLink(name, f"/documents/{document_id}") for document_id, name in documents),
        validation=_validation(facts),
        model=_model(facts),
        votes=tuple(VoteLine(vote[0], cast("Decision", vote[1]), vote[2]) for vote in votes),
        decided_by=row[15],
        decided_at=row[14],
        reason=row[16],
        superseded_by=row[17],
        pruned_at=row[25],
    )


def _validation(facts: dict[str, Any]) -> Validation:
    repairs = int(facts.get("repairs") or 0)
    stated = {"valid": "The draft matched its schema.", "repaired": f"The draft matched its schema after {repairs} repair(s)."}
    return Validation(
        stated.get(str(facts.get("validation")), "The output matched its schema; no model was asked."), (), repairs
    )


def _model(facts: dict[str, Any]) -> str | None:
    models = cast("list[dict[str, Any]]", facts.get("models") or [])
    return ", ".join(dict.fromkeys(str(model.get("model")) for model in models)) or None

"""Approvals for every door: the card, the inbox, the decision, the edit, and the link that leads to the page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from deedbox.extend.action import Action
from deedbox.extend.connector import Connector
from deedbox.gate.batch import Answer, Line, decide_many
from deedbox.gate.confirm import Confirmed, stake_of
from deedbox.gate.decide import decide
from deedbox.gate.delegate import HandedOver, delegate, withdraw
from deedbox.gate.edit import Edited, edit
from deedbox.gate.links import mint
from deedbox.gate.masking import NOTHING, mask_of
from deedbox.gate.remarks import MOST_COMMENTS, comment, snooze
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.announced import AnnouncedLine, announced
from deedbox.operate.card_rows import card_of, changes_of, decides, effect_of, line_of, may_see, original_of, shows
from deedbox.operate.cards import (
    SHOWS,
    ApprovalCard,
    ApprovalLine,
    CommentLine,
    Decision,
    DecisionResult,
    DoneBefore,
    EditedBy,
    RepeatView,
    Show,
)
from deedbox.operate.edit_form import EditField, fields_of, payload_of
from deedbox.operate.reasons import of_input, with_defaults
from deedbox.operate.rows import rows_of
from deedbox.store import cards, decision, delegation, editing, remarks, rounds
from deedbox.store.decision import Standing
from deedbox.store.editing import Content
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit

MOST_LINES = 200
MOST_SAYS = 200


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
        not there is shown in the order it is stored, and cannot be edited here.
        """
        self._pool = pool
        self._ids = ids
        self._connectors = dict(connectors or {})
        self._actions = dict(actions or {})
        self._payloads = {name: one.payload_model for name, one in self._connectors.items()}
        self._public_url = public_url.rstrip("/")

    async def card(self, tenant: str, approval_id: UUID, principal: Principal) -> ApprovalCard | None:
        """The card, or None for an approval that is unknown, of another tenant, or not for this principal's eyes."""
        async with autocommit(self._pool) as connection:
            row = await cards.card(connection, tenant, approval_id)
            if row is None or not may_see(principal, row[22]):
                return None
            standing = await decision.standing(connection, approval_id, tenant, UUID(principal.principal_id))
            if standing is None:
                return None
            found = await editing.effects(connection, row[1], row[20], row[21])
            votes = await cards.votes(connection, approval_id)
            sent = await cards.sent(connection, row[1], approval_id) if standing.state == "approved" else []
            said = await remarks.comments(connection, approval_id, MOST_COMMENTS)
            away = await remarks.snoozed(connection, tenant, UUID(principal.principal_id), MOST_LINES)
            documents = await cards.documents(connection, row[1])
            again = await rounds.repeats(connection, approval_id) if standing.replaces is not None else []
            before = await rounds.before(connection, row[1]) if standing.replaces is not None else []
            edited = await self._edited(connection, approval_id, found) if standing.editors else None
            asked = await cards.held_input(connection, approval_id) if standing.purpose == "input" else None
            # Who decides, decides on exactly what is shown; to whoever else may look, what is sensitive is masked.
            mask = NOTHING if decides(principal, standing) else await mask_of(connection, row[1])
        action = self._actions.get(row[2])
        base = replace(
            card_of(row, standing, votes, documents, principal),
            comments=tuple(CommentLine(name, mask.texts(text), at.astimezone(UTC)) for name, text, at in said),
            snoozed_until=away.get(approval_id),
            sent=tuple(
                DoneBefore(slot, connector, target, state, provider_id, None if at is None else at.astimezone(UTC))
                for slot, connector, target, state, provider_id, at in sent
            ),
        )
        if asked is not None:
            model = None if action is None else action.input_model
            arguments = rows_of(mask.input(with_defaults(asked[2], model)), model)
            return of_input(base, arguments)
        sentences = tuple(one.summary for one in found) or ("Nothing is sent: the action abstained.",)
        grave = standing.consequence == "grave"
        output_model = None if action is None else action.output_model
        return replace(
            base,
            sentences=sentences,
            effects=tuple(effect_of(one, self._payloads, mask) for one in found),
            draft=rows_of(mask.output(row[18]), output_model) if row[18] is not None else (),
            repeats=tuple(RepeatView(item.slot, item.state, item.effect_id, item.provider_id) for item in again),
            original=original_of(before),
            stake=stake_of(standing.action, [(one.target, one.body) for one in found]) if grave else None,
            edited=edited,
        )

    async def _edited(self, connection: Connection, approval_id: UUID, now: Sequence[Content]) -> EditedBy | None:
        former = await editing.former(connection, approval_id)
        if former is None:
            return None
        before = await editing.effects(connection, former.job_id, former.proposal_id, former.group)
        changes = tuple(changes_of(before, now, self._payloads))
        return EditedBy(tuple(former.editors), former.edited_at.astimezone(UTC), former.approval_id, changes)

    async def inbox(self, tenant: str, principal: Principal, show: Show = "all") -> list[ApprovalLine]:
        """The pending approvals this principal may see, the nearest deadline first, or those of them that `show` names.

        What it has decided comes newest first. Raises DeedboxError: invalid_parameter for a word that is none of them,
        person_required where a list is a person's own.
        """
        if show not in SHOWS:
            raise DeedboxError("invalid_parameter", f"show: is one of {', '.join(SHOWS)}.")
        if show not in {"all", "soon"} and principal.kind != "person":
            raise DeedboxError("person_required", "What is one's own to decide, a person is asked; this is a program.")
        me = UUID(principal.principal_id)
        async with autocommit(self._pool) as connection:
            if show == "decided":
                rows = await cards.voted(connection, tenant, me, MOST_LINES)
            else:
                rows = await cards.inbox(connection, tenant, MOST_LINES)
            handed = await cards.handed(connection, tenant, me, MOST_SAYS) if rows else []
            away = await remarks.snoozed(connection, tenant, me, MOST_LINES) if rows and principal.kind == "person" else {}
        lines = [line_of(row, principal, handed) for row in rows if may_see(principal, row[8])]
        return [line for line in (_with_snooze(one, away) for one in lines) if shows(line, show)]

    async def comment(self, principal: Principal, approval_id: UUID, text: str, how: str) -> datetime:
        """Say something of an approval that waits. See deedbox.gate.remarks."""
        return await comment(self._pool, self._ids, principal, approval_id, text, how=how)

    async def snooze(
        self, principal: Principal, approval_id: UUID, how: str, *, until: datetime | None = None, for_s: float | None = None
    ) -> datetime | None:
        """Look away from an approval for a while, or at it again. See deedbox.gate.remarks."""
        return await snooze(self._pool, self._ids, principal, approval_id, until=until, for_s=for_s, how=how)

    async def announced(self, tenant: str, principal: Principal) -> list[AnnouncedLine]:
        """What leaves by itself when its window has passed, as far as this principal may see it, the next to leave first."""
        return await announced(self._pool, tenant, principal)

    async def decide(
        self,
        principal: Principal,
        approval_id: UUID,
        digest_hex: str,
        decision: Decision,
        reason: str | None,
        how: str,
        repeat: Sequence[str] = (),
        confirmed: Confirmed | None = None,
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
            confirmed=confirmed,
        )
        return DecisionResult(done.state, done.by, done.at, done.message)

    async def decide_many(
        self, principal: Principal, lines: Sequence[Line], decision: Decision, reason: str | None, how: str
    ) -> list[Answer]:
        """Decide several of one action and policy, of low consequence, each by its digest. See deedbox.gate.batch."""
        return await decide_many(self._pool, self._ids, principal, lines=lines, choice=decision, reason=reason, how=how)

    async def edit(
        self,
        principal: Principal,
        approval_id: UUID,
        digest_hex: str,
        payloads: Mapping[str, Any],
        reason: str | None,
        how: str,
    ) -> Edited:
        """Change payloads by slot and hold the group again under a new approval. See deedbox.gate.edit."""
        return await edit(
            self._pool,
            self._ids,
            principal,
            connectors=self._connectors,
            actions=self._actions,
            approval_id=approval_id,
            digest_hex=digest_hex,
            payloads=payloads,
            reason=reason,
            how=how,
        )

    async def edit_form(self, principal: Principal, approval_id: UUID) -> list[tuple[str, tuple[EditField, ...]]]:
        """The fields of each effect by slot, for a person who may see it. Raises DeedboxError not_found."""
        _, found = await self._content(principal, approval_id)
        return [(one.slot, fields_of(json.loads(one.body)["payload"], self._payloads.get(one.connector))) for one in found]

    async def entered(self, principal: Principal, approval_id: UUID, given: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """The payloads that come of a form: by slot, the texts of its fields. Raises DeedboxError as `payload_of` does."""
        _, found = await self._content(principal, approval_id)
        return {
            one.slot: payload_of(
                json.loads(one.body)["payload"],
                self._payloads.get(one.connector),
                given[one.slot],
                f"/payloads/{one.slot}",
            )
            for one in found
            if one.slot in given
        }

    async def _content(self, principal: Principal, approval_id: UUID) -> tuple[Standing, list[Content]]:
        async with autocommit(self._pool) as connection:
            standing = await decision.standing(connection, approval_id, principal.tenant, UUID(principal.principal_id))
            if standing is None or not may_see(principal, standing.subject):
                raise DeedboxError("not_found", "There is no such approval, or it is not yours.")
            return standing, await editing.effects(connection, standing.job_id, standing.proposal_id, standing.group)

    async def delegate(
        self,
        principal: Principal,
        to: str,
        *,
        approval_id: UUID | None,
        until: datetime | None,
        reason: str | None,
        how: str,
    ) -> HandedOver:
        """Hand one's say to another person, in one approval or in all until a moment. See deedbox.gate.delegate."""
        return await delegate(
            self._pool,
            self._ids,
            principal,
            to=to,
            approval_id=approval_id,
            until=until,
            reason=reason,
            how=how,
        )

    async def withdraw(self, principal: Principal, delegation_id: UUID, how: str) -> None:
        """End a delegation that this person gave or was given. Raises DeedboxError not_found."""
        await withdraw(self._pool, principal, delegation_id, how=how)

    async def delegations(self, principal: Principal) -> list[delegation.Delegation]:
        """What this person handed on and was handed, the newest first."""
        async with autocommit(self._pool) as connection:
            return await delegation.mine(connection, principal.tenant, UUID(principal.principal_id), MOST_SAYS)

    async def link(self, approval_id: UUID) -> str | None:
        """A link to the page: it shows who asks and leads to the login; it decides nothing. None when nothing is pending.

        The token is 256 random bits; only its SHA-256 is kept, and every decision voids it.
        """
        return await mint(self._pool, self._public_url, approval_id)


def _with_snooze(line: ApprovalLine, away: Mapping[UUID, datetime]) -> ApprovalLine:
    until = away.get(line.approval_id)
    return line if until is None else replace(line, snoozed_until=until.astimezone(UTC))

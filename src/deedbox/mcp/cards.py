"""What a person who may decide an approval is shown of it where the job is followed: exactly what the decision is bound to.

A decision is offered only where all that is decided can be shown and nothing has to be typed or chosen first: what is grave,
what repeats something done before, what has attachments, or is very long is decided on the approval's page.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from deedbox.mcp.wire import object_of
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.approvals import Approvals
from deedbox.operate.cards import ApprovalCard, Row
from deedbox.operate.tools import Envelope
from deedbox.operate.views import AWAY

MOST_SHOWN = 12_000
"""The longest content that is decided beside a job, in characters."""


async def with_card(approvals: Approvals, who: Principal, envelope: Envelope) -> Envelope:
    """The answer with the first open approval as `who` may see and decide it; as it is where there is none for them."""
    data = object_of(envelope.data)
    waits = object_of(data.get("approval"))
    if not waits or who.kind != "person" or not who.may("decide"):
        return envelope
    try:
        card = await approvals.card(who.tenant, UUID(str(waits["approval_id"])), who)
    except (DeedboxError, *AWAY):
        # The job is told all the same, and the page is still there.
        return envelope
    if card is None or card.state != "pending":
        return envelope
    return replace(envelope, data={**data, "approval": {**waits, **_decided_here(card)}})


def _decided_here(card: ApprovalCard) -> dict[str, Any]:
    parts = _parts(card)
    length = sum(len(row["label"]) + len(row["value"]) for part in parts for row in part["rows"])
    plain = card.stake is None and not card.repeats and not any(effect.attachments for effect in card.effects)
    if not card.may_decide or not plain or length > MOST_SHOWN:
        return {"may_decide": False, "sentences": list(card.sentences), "why_not": card.why_not}
    return {
        "may_decide": True,
        "digest": card.digest_hex,
        "sentences": list(card.sentences),
        "parts": parts,
        "why_asked": card.why_asked,
        "on_yes": card.on_yes,
        "on_no": card.on_no,
    }


def _parts(card: ApprovalCard) -> list[dict[str, Any]]:
    """Every value that is decided, by what it belongs to."""
    parts = [{"name": f"{effect.connector} to {effect.target}", "rows": _rows(effect.rows)} for effect in card.effects]
    return [{"name": "arguments", "rows": _rows(card.arguments)}, *parts] if card.arguments else parts


def _rows(rows: tuple[Row, ...]) -> list[dict[str, str]]:
    return [{"label": row.label, "value": row.value} for row in rows]

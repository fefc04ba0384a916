"""Why an effect does not go out: every reason there is, each in a word and in a sentence for a person."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from deedbox.store import waits
from deedbox.store.pool import Connection
from deedbox.store.targets import EVERY

Reason = dict[str, str]


async def reasons(connection: Connection, tenant: str, effect_id: UUID) -> list[Reason]:
    """What holds a pending effect back, as `why` (a word) and `message`; empty where nothing does, or it is not pending."""
    found = await waits.facts(connection, tenant, effect_id)
    if found is None:
        return []
    row, gates = found
    return [
        {"why": why, "message": message} for why, message in [*_switch(row), *_times(row), *_gates(row, gates), *_rest(row)]
    ]


def _switch(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    root = row["root"]
    if root is None:
        yield "switch", "The switch has no row, which means off."
    elif not root["is_on"]:
        yield "switch", f"The switch is off since {root['by']} turned it: {root['why']}"
    for part in row["narrowed"]:
        names = ", ".join(f"{name} {part[name]}" for name in ("tenant", "action", "connector", "target") if part[name])
        yield "switch", f"The switch is off for {names or 'all of these'}, turned by {part['by']}: {part['why']}"
    if row["dispatchers"] == 0:
        yield "dispatcher", "No dispatcher runs."
    elif row["kind"] == "act" and row["environment_on"] == 0:
        yield "switch", "The environment's half of the switch is off in every dispatcher: AI_ACTIONS_ENABLED is not true."


def _times(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if row["late"]:
        yield "not_after", f"Its time passed at {row['not_after']:%Y-%m-%d %H:%M:%S %Z}; it is ended as not sent."
    elif row["early"]:
        yield "not_before", f"It is not due before {row['not_before']:%Y-%m-%d %H:%M:%S %Z}."
    if row["after_slot"] is not None and row["predecessor"] != "completed":
        stands = row["predecessor"] or "not on the outbox yet"
        yield "predecessor", f"It goes after {row['after_slot']}, which is {stands}."


def _gates(row: dict[str, Any], gates: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for gate in gates:
        name = f"connector {row['connector']}" if gate["target"] == EVERY else f"target {row['connector']}:{gate['target']}"
        if gate["paused"]:
            yield "paused", f"The {name} is paused by {gate['paused_by']}: {gate['pause_reason']}"
        if gate["slowed_until"] is not None:
            yield "slowed", f"The {name} asked to be left alone until {gate['slowed_until']:%H:%M:%S %Z}."
        if gate["breaker"] == "open":
            yield (
                "breaker",
                f"The {name} failed again and again ({gate['breaker_why']}); tried at {gate['breaker_until']:%H:%M:%S %Z}.",
            )
        if gate["breaker"] == "half_open":
            yield "breaker", f"The {name} failed again and again; it is tried with effect {gate['probe_effect']} now."
        if gate["spent"]:
            yield "rate", f"The {name} takes {gate['rate_per_s']:g} a second, and has had its share."
        if gate["head"] is not None:
            said = f"The {name} gets one at a time in order; effect {gate['head']} is before it, and {gate['head_state']}."
            yield "order", said + (" A person settles that one." if gate["head_state"] == "unknown" else "")


def _rest(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if row["doubtful"] and not row["key_lives"]:
        yield "key", "It may have been accepted before, and the target does not know its key any more: it becomes unknown."
    if not row["authorised"]:
        yield "authority", "No approval or verdict stands for its exact bytes."

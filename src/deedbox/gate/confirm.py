"""What a person types before something grave is approved: the amount at stake, or whom it reaches."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from deedbox.model.errors import DeedboxError, Problem


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a page asked once more: whether the person has proved who it is within the last minutes, and what it typed."""

    fresh: bool
    typed: str


@dataclass(frozen=True, slots=True)
class Stake:
    """What has to be typed, and what it is called."""

    kind: str
    text: str


def stake_of(action: str, effects: Sequence[tuple[str, bytes]]) -> Stake:
    """The amount in the first of these effects (target, body) that has one, else the first one's target.

    An amount is a number or a text under the name `amount`, at the top of a payload or of the `body` in it. Where nothing is
    sent, it is the action's name.
    """
    for _, body in effects:
        payload = json.loads(body)["payload"]
        inner = cast("dict[str, Any]", payload).get("body") if isinstance(payload, dict) else None
        amount = _amount(payload) or _amount(inner)
        if amount is not None:
            return Stake("amount", amount)
    return Stake("target", effects[0][0]) if effects else Stake("action", action)


def _amount(place: Any) -> str | None:
    found = cast("dict[str, Any]", place).get("amount") if isinstance(place, dict) else None
    usable = isinstance(found, (int, float, str)) and not isinstance(found, bool)
    return (str(found).strip() or None) if usable else None


def require_confirmed(confirmed: Confirmed | None, stake: Stake) -> None:
    """Raise DeedboxError confirmation_required where the password or the stake was not given, or not right."""
    if confirmed is None or not confirmed.fresh:
        problem = Problem("/password", "required", "the password, or a login within the last five minutes")
        raise DeedboxError(
            "confirmation_required", "For something this grave, give your password once more.", problems=(problem,)
        )
    if " ".join(confirmed.typed.split()) != " ".join(stake.text.split()):
        problem = Problem("/stake", "mismatch", f"the {stake.kind}, as it is shown")
        said = f"Type the {stake.kind} exactly as it is shown; what you typed is another."
        raise DeedboxError("confirmation_required", said, problems=(problem,))

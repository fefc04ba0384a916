"""The same application on a product that breaks a promise on purpose: the checker has to find it.

`make chaos ARGS="--app tests.chaos.broken:resent --seconds 60"` ends with exit code 1; each of `BREAKS` is such a name.
"""

import re
from collections.abc import Callable
from typing import Any, LiteralString, cast

import pytest

from deedbox.dispatch import send
from deedbox.extend.connector import Ambiguous, Connector, EffectOrder, Outcome, Transient
from deedbox.store.loader import statement, statements
from tests.chaos.app import app

_patch = pytest.MonkeyPatch()
_perform = send.perform


def _resent() -> None:
    """What may have been accepted is taken for not sent, and sent again."""

    async def perform(connector: Connector, order: EffectOrder) -> Outcome:
        outcome = await _perform(connector, order)
        if isinstance(outcome, Ambiguous):
            return Transient("not_sent", outcome.code, outcome.message, outcome.phase, 0.1)
        return outcome

    _patch.setattr(send, "perform", perform)


def _altered() -> None:
    """Something else is sent than what was approved."""

    async def perform(connector: Connector, order: EffectOrder) -> Outcome:
        call = cast("dict[str, Any]", order.payload)
        call["body"]["number"] += 1
        return await _perform(connector, order)

    _patch.setattr(send, "perform", perform)


def _unswitched() -> None:
    """Nobody looks at the switch."""

    def blind(module: LiteralString, name: LiteralString) -> LiteralString:
        text = statement(module, name)
        if module != "outbox" or name not in {"lease", "lease_gated"}:
            return text
        return text.replace("SELECT is_on FROM switches", "SELECT true FROM switches").replace(
            "AND NOT s.is_on AND", "AND false AND"
        )

    async def go(*_given: object, **_options: object) -> str:
        return "go"

    _patch.setattr("deedbox.store.outbox.statement", blind)
    _patch.setattr("deedbox.dispatch.loop.leave_to_dial", go)


def without_fence() -> dict[str, str]:
    """The statements that end attempts, without their fence. Raises RuntimeError where that is written in another way."""
    found: dict[str, str] = {}
    for name in ("complete_attempts", "lock_attempts"):
        found[name], count = re.subn(
            r"AND (q\.|)attempt_id = (\w+)\.attempt_id AND \1fence = \2\.fence", "", statements("queue")[name]
        )
        if count != 1:
            raise RuntimeError(f"queue.{name} names its fence {count} times as it is looked for")
    return found


def _unfenced() -> None:
    """A worker ends what it once held, whoever holds it now."""
    for name, broken in without_fence().items():
        _patch.setitem(statements("queue"), name, cast("LiteralString", broken))


BREAKS: dict[str, Callable[[], None]] = {
    "resent": _resent,
    "altered": _altered,
    "unswitched": _unswitched,
    "unfenced": _unfenced,
}


def __getattr__(name: str) -> Any:
    """The application, after the break of that name. Raises AttributeError for any other."""
    if name not in BREAKS:
        raise AttributeError(name)
    BREAKS[name]()
    return app

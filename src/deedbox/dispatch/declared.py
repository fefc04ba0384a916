"""What a connector declares of a target, asked once and safely: what declares nothing is blind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from deedbox.extend.connector import Capability, Connector
from deedbox.telemetry import log

_Ask = Callable[[str], object]
_log = log("dispatch")


@dataclass(frozen=True, slots=True)
class Declared:
    """What an ambiguous end at a target can become, and how the target is held back.

    `key_ttl_s` is how long it remembers a native key, `visibility_lag_s` how late it shows what it has accepted, in seconds.
    `kept_under` names the row that its failures and its pauses are kept in: its own, or one that it shares with others.
    """

    capability: Capability = "blind"
    key_ttl_s: float | None = None
    visibility_lag_s: float = 0.0
    can_be_asked: bool = True
    kept_under: str = ""


def declared(connector: Connector | None, target: str) -> Declared:
    """What the connector says of the target; of one that is not there, or that cannot say, nothing is known."""
    if connector is None:
        return Declared(can_be_asked=False, kept_under=target)
    try:
        capability = connector.capability(target)
        ttl_s = _asked(connector, "key_ttl_s", target) if capability == "native_key" else None
        lag_s = _asked(connector, "visibility_lag_s", target)
        can_be_asked = _asked(connector, "can_be_asked", target)
        kept_under = _asked(connector, "kept_under", target)
    except Exception as error:  # noqa: BLE001 -- a connector that cannot say what it is declares nothing
        _log.warning("capability_unknown", connector=connector.name, error=type(error).__name__)
        return Declared(kept_under=target)
    return Declared(
        capability,
        cast("float | None", ttl_s),
        float(cast("float", lag_s or 0.0)),
        can_be_asked is not False,
        str(kept_under or target),
    )


def _asked(connector: Connector, name: str, target: str) -> object:
    """What an optional method of a connector says; None without it."""
    # Asked for the name alone: `isinstance` of a protocol takes as long as all the rest of a sending here.
    method: _Ask | None = getattr(connector, name, None)
    return None if method is None else method(target)

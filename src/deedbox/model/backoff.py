"""How long to wait before the next attempt, and the durations an action may set."""

import math
import random
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MAX_SECONDS = 400 * 86400.0
MOST_ATTEMPTS = 100
MOST_FACTOR = 10.0


def seconds(value: str | float, *, name: str = "duration") -> float:
    """A duration in seconds from a number or from text such as `24h`, `1h30m` or `250ms`.

    The whole text must be consumed, and the result is finite, positive and at most 400 days. Raises ValueError naming
    `name` otherwise (hatchet 0.90.13 cut `42m30s` to 42 minutes without a word).
    """
    if isinstance(value, str):
        parts = _PART.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            raise ValueError(f"{name}: {value!r} is not a duration; write for example 30s, 24h or 1h30m")
        result = sum(float(number) * _UNITS[unit] for number, unit in parts)
    else:
        result = float(value)
    if not math.isfinite(result) or result <= 0 or result > MAX_SECONDS:
        raise ValueError(f"{name}: {value!r} must be above zero and at most 400 days")
    return result


def retry_after_s(value: str, answered: str) -> float | None:
    """Seconds to wait by the fields `Retry-After` and `Date` of one answer (RFC 9110, 10.2.3), or None where neither form is.

    Of a date, the distance to the answer's own `Date` counts: both come from the provider's clock, and ours is not asked.
    What is past is zero. The caller caps it.
    """
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(answered)
    except (ValueError, TypeError, OverflowError):  # absent, nonsense, or only one of the two has a zone
        return None
    return max(0.0, wait.total_seconds())


@dataclass(frozen=True, slots=True)
class Retry:
    """How often an action is tried, and the backoff between tries: full jitter over an exponential ceiling.

    `attempts` counts every try, the first included. `base` and `cap` are durations (seconds, or text such as `5m`).
    """

    attempts: int = 5
    base: str | float = 1.0
    cap: str | float = 300.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Refuse numbers that could not reach SQL safely. Raises ValueError."""
        if not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise ValueError(f"attempts: {self.attempts} must be between 1 and 100")
        if not math.isfinite(self.factor) or not 1 <= self.factor <= MOST_FACTOR:
            raise ValueError(f"factor: {self.factor} must be between 1 and 10")
        if seconds(self.base, name="base") > seconds(self.cap, name="cap"):
            raise ValueError("base: must not be above cap")

    def ceiling(self, attempt: int) -> float:
        """The longest wait in seconds after the given attempt (1 is the first)."""
        cap = seconds(self.cap, name="cap")
        exponent = min(max(attempt - 1, 0), 64)
        return min(cap, seconds(self.base, name="base") * self.factor**exponent)

    def delay(self, attempt: int, *, retry_after: float | None = None) -> float:
        """A wait in seconds: drawn between zero and the ceiling, and at least the provider's `Retry-After`, capped.

        A `Retry-After` of zero does not make it come at once: the draw holds.
        """
        drawn = random.uniform(0, self.ceiling(attempt))  # noqa: S311 -- jitter, not a secret
        if retry_after is None or not math.isfinite(retry_after):
            return drawn
        return min(max(drawn, retry_after), seconds(self.cap, name="cap"))

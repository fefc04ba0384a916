"""How long to wait for an endpoint: three times what all but the slowest of its last answers took, never beyond the setting."""

import math
import time
from collections import deque

WINDOW = 200
"""Answers that are remembered, the last ones."""
ENOUGH = 20
"""Answers before what was measured counts; until then the setting holds."""
SHARE = 0.99
TIMES = 3.0


class Patience:
    """Measures one endpoint and says how long the next request may take. Of one process; nothing is stored."""

    def __init__(self, most_s: float, least_s: float) -> None:
        """Between `least_s` and `most_s` seconds, and `most_s` until enough is known."""
        self._most = most_s
        self._least = min(least_s, most_s)
        self._took: deque[float] = deque(maxlen=WINDOW)

    @property
    def limit_s(self) -> float:
        """Seconds the next request may take."""
        if len(self._took) < ENOUGH:
            return self._most
        slow = sorted(self._took)[math.ceil(SHARE * len(self._took)) - 1]
        return min(self._most, max(self._least, TIMES * slow))

    def took(self, started: float) -> None:
        """A request that began at `started` on the monotonic clock was answered, or was given up just now.

        One that was given up counts as what it took until then: an endpoint that has become slower is given more time from
        one request to the next, up to the setting.
        """
        self._took.append(time.monotonic() - started)

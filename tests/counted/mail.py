"""A mail server that breaks at a phase of its own choosing, another one for each connection."""

import asyncio
import copy
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.servers.smtp_server import Fault, Phase, SmtpServer

_PHASES: tuple[Phase, ...] = ("banner", "ehlo", "mail", "rcpt", "data", "body", "dot")
_ENDS: tuple[Fault, ...] = ("stall", "close", "451 come later")
STALLS_S = 6.0
"""How long a stall lasts, in seconds: longer than any sending's lease."""


@dataclass(slots=True)
class BreakingMail(SmtpServer):
    """Of five connections one breaks, at any phase; `drawn` counts phase and fault of each, a healthy one as `none`."""

    seed: int = 0
    drawn: Counter[str] = field(default_factory=Counter[str])
    _rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        """The draws follow from the seed."""
        self._rng = random.Random(self.seed)  # noqa: S311 -- faults, no secrets

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = copy.copy(self)
        phase = self._rng.choice(_PHASES)
        # A server does not answer in the midst of a body.
        fault = self._rng.choice(_ENDS[:2] if phase == "body" else _ENDS) if self._rng.random() < 0.2 else None
        one.faults = {phase: fault} if fault else {}
        one.released = asyncio.Event()
        self.drawn[f"{phase}: {fault}" if fault else "none"] += 1
        release = asyncio.get_running_loop().call_later(STALLS_S, one.released.set)
        try:
            await SmtpServer._connection(one, reader, writer)
        finally:
            release.cancel()

    def count(self) -> Counter[str]:
        """How often each effect's mail was taken over, by the effect's id, which its Message-ID begins with."""
        found: Counter[str] = Counter()
        for mail in self.mails:
            for line in mail.data.split(b"\r\n\r\n", 1)[0].split(b"\r\n"):
                if line.lower().startswith(b"message-id:"):
                    found[line.split(b"<", 1)[1].split(b"@", 1)[0].decode()] += 1
        return found

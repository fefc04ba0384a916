"""The outside world: a provider that counts what it really did, and ends each sending as it is told to."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel

from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, LookUp, Outcome, Receipt, Refused, Transient
from deedbox.model.fingerprint import effect_body, sha256

Ending = Literal[
    "delivered",
    "not_sent",
    "busy",
    "refused",
    "cut_off_done",
    "cut_off_undone",
    "raises_done",
    "raises_undone",
    "hangs_done",
    "hangs_undone",
]
Answer = Literal["truth", "silence", "error"]
TARGETS: dict[str, Capability] = {"wall": "blind", "board": "searchable", "ledger": "native_key"}
ENDINGS: tuple[Ending, ...] = get_args(Ending)
KEY_TTL_S = 3000.0
"""How long the ledger remembers a key, in seconds: several leases, and less than the longest steps of the clock."""


class Words(BaseModel):
    """What is sent."""

    text: str


class ProviderBrokeError(RuntimeError):
    """What a connector of ours would never raise; the product must take it for ambiguous."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One order as it arrived: which effect, the digest of what it says, and whether acting was allowed at that moment."""

    effect_id: str
    job_id: str
    slot: str
    digest: str
    switched_on: bool


@dataclass
class Provider:
    """A connector to three targets: one that cannot be asked, one that can, and one that knows keys for a while."""

    name: str = "paper"
    payload_model: type[BaseModel] = Words
    performed: Counter[str] = field(default_factory=Counter[str])
    """How often each effect really happened; a key that is still remembered makes nothing happen again."""
    asked: list[Asked] = field(default_factory=list[Asked])
    now_s: float = 0.0
    switched_on: bool = False
    ending: Ending = "delivered"
    answer: Answer = "truth"
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    hanging: dict[tuple[str, int], asyncio.Future[Outcome]] = field(
        default_factory=dict[tuple[str, int], "asyncio.Future[Outcome]"]
    )
    _keys: dict[str, float] = field(default_factory=dict[str, float])

    def forget(self) -> None:
        """Begin a new world."""
        self.performed.clear()
        self.asked.clear()
        self._keys.clear()
        self.hanging.clear()
        self.now_s, self.switched_on, self.ending, self.answer = 0.0, False, "delivered", "truth"

    def check_target(self, target: str) -> None:
        """The three targets."""
        if target not in TARGETS:
            raise ValueError(target)

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Any payload."""

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """One sentence."""
        return f"Writes {payload['text']!r} to {target}."

    def capability(self, target: str) -> Capability:
        """What an ambiguous end can become."""
        return TARGETS[target]

    def key_ttl_s(self, target: str) -> float | None:
        """How long a key is remembered, in seconds."""
        return KEY_TTL_S if TARGETS[target] == "native_key" else None

    async def send(self, order: EffectOrder) -> Outcome:
        """Do it or not, and end as told."""
        body = effect_body(order.connector, order.target, order.slot, dict(order.payload))
        self.asked.append(Asked(order.effect_id, order.job_id, order.slot, sha256(body).hex(), self.switched_on))
        if self.ending == "delivered" or self.ending.endswith("_done"):
            self._perform(order)
        match self.ending:
            case "delivered":
                return Receipt(f"p-{order.effect_id}")
            case "not_sent":
                return Transient("not_sent", "refused_connection", "Nobody listens there.", "connect")
            case "busy":
                return Transient("rate_limited", "http_429", "Too many at once.", "answered", 60.0)
            case "refused":
                return Refused("caller_error", "http_422", "The provider does not take this.", "answered")
            case "cut_off_done" | "cut_off_undone":
                return Ambiguous("timed_out", "No answer came in time.", "body_sent")
            case "raises_done" | "raises_undone":
                raise ProviderBrokeError
            case "hangs_done" | "hangs_undone":
                future = asyncio.get_running_loop().create_future()
                self.hanging[order.effect_id, order.attempt] = future
                self.hung.set()
                return await future

    def _perform(self, order: EffectOrder) -> None:
        since = self._keys.get(order.effect_id)
        if TARGETS[order.target] == "native_key" and since is not None and self.now_s - since < KEY_TTL_S:
            return
        self._keys[order.effect_id] = self.now_s
        self.performed[order.effect_id] += 1

    async def look_up(self, order: EffectOrder) -> LookUp:
        """Say the truth, nothing, or fail."""
        if self.answer == "error":
            raise ProviderBrokeError
        if self.answer == "silence":
            return LookUp("still_unknown")
        if self.performed[order.effect_id]:
            return LookUp("accepted", f"p-{order.effect_id}")
        return LookUp("not_accepted")

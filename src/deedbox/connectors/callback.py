"""Callbacks: telling a registered receiver what became of a job, signed, at least once, always under the same id.

A receiver that keeps the ids it has seen is told once. So an end that leaves it open whether a delivery arrived is no riddle:
it is sent again, with the same id and the same bytes.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from deedbox.connectors.answers import CLIENT_ERRORS, SUCCESS, outcome_of, retry_after
from deedbox.connectors.callback_settings import CallbackConfig
from deedbox.connectors.http import json_bytes
from deedbox.connectors.settings import ConnectorSettings
from deedbox.connectors.signing import sign, wall_clock_s
from deedbox.connectors.targets import host_and_port
from deedbox.egress import Answer, EgressClient, EgressPolicy, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import (
    TARGET_GONE,
    Ambiguous,
    Capability,
    EffectOrder,
    LookUp,
    Outcome,
    Receipt,
    Refused,
    Transient,
)
from deedbox.model.backoff import Retry

CALLBACK_RETRY = Retry(attempts=16, base=5.0, cap="6h", factor=3.0)
"""Seconds, minutes, hours: a receiver that is repaired within a day misses nothing."""
_UNREAD = 64 * 1024  # bytes of an answer that nobody reads
_FOR_EVER_S = 100 * 365 * 86400.0


class CallbackEvent(BaseModel):
    """One event as a receiver gets it: the envelope of the event stream, with the action's name."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    event_id: str = Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")
    type: str
    job_id: str
    action: str
    seq: int
    round: int
    attempt_id: str | None = None
    timestamp: str
    payload: dict[str, Any] = Field(default_factory=dict[str, Any])


class Callback:
    """POSTs events to the receivers that settings name.

    Capability: native_key without an end, the key being the event's id (`Webhook-Id`), as Standard Webhooks asks receivers to
    keep it. 410 is final and disables the receiver; anything else that is not a 2xx is tried again.
    """

    payload_model: type[BaseModel] = CallbackEvent
    retry = CALLBACK_RETRY

    def __init__(self, name: str = "callback") -> None:
        """`name` is the connector's in the ledger."""
        self.name = name
        self._targets: dict[str, CallbackConfig] = {}
        self._client: EgressClient | None = None

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take the receivers from settings."""
        self._targets = {target.name: target for target in settings.callbacks}
        self._client = EgressClient(egress)

    async def aclose(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.aclose()

    def check_target(self, target: str) -> None:
        """Raise ValueError for a receiver that settings do not name."""
        self._config(target)

    def leads_to(self, target: str) -> tuple[str, int] | None:
        """The host and port of the receiver's URL."""
        config = self._targets.get(target)
        return None if config is None else host_and_port(config.url)

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for a receiver that is not set or a payload that is no event."""
        self.check_target(target)
        CallbackEvent.model_validate(dict(payload))

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Who is told what, of which job."""
        event = CallbackEvent.model_validate(dict(payload))
        return f"Tells {target} of {event.type} of the job {event.job_id}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Always native_key: the receiver knows an event by its id."""
        return "native_key"

    def key_ttl_s(self, target: str) -> float | None:  # noqa: ARG002 -- the protocol's signature
        """A hundred years: an event that comes twice is the receiver's to see, whenever it comes."""
        return _FOR_EVER_S

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """A receiver is not asked; it is told again."""
        return LookUp("still_unknown")

    async def send(self, order: EffectOrder) -> Outcome:
        """Deliver once, within `order.deadline_s` seconds, signed with every secret that is set."""
        try:
            config = self._config(order.target)
            event = CallbackEvent.model_validate(dict(order.payload))
            content = json_bytes(event.model_dump(mode="json"))
        except ValueError:  # pydantic's ValidationError is one
            return Refused("caller_error", "payload_invalid", "The receiver or the event is not one that can be used.", "plan")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= sign(config.secrets, event.event_id, content, at_s=wall_clock_s())
        try:
            answer = await self._bound().request(
                "POST", config.url, headers=headers, content=content, deadline_s=order.deadline_s, cap=_UNREAD
            )
        except (EgressRefused, NotSent, MaybeSent) as error:
            return outcome_of(error)
        return _outcome(config.name, event.event_id, answer)

    def _bound(self) -> EgressClient:
        if self._client is None:
            raise ValueError(f"connector {self.name}: used before it was bound to settings")
        return self._client

    def _config(self, target: str) -> CallbackConfig:
        config = self._targets.get(target)
        if config is None:
            raise ValueError(f"connector {self.name}: no receiver named {target!r} is set")
        return config


def _outcome(name: str, event_id: str, answer: Answer) -> Outcome:
    status = answer.status
    code, said = f"callback_{status}", f"The receiver {name} answered {status}."
    if status in SUCCESS:
        return Receipt(event_id, {"status": status})
    if status == HTTPStatus.GONE:
        return Refused("caller_error", TARGET_GONE, f"The receiver {name} answered 410: it wants to hear no more.", "answered")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Transient("rate_limited", code, said, "answered", retry_after(answer))
    if status in CLIENT_ERRORS:
        # A wrong route or a wrong secret on the other side is repaired there, and what was missed then comes.
        return Transient("not_sent", code, said, "answered", retry_after(answer))
    return Ambiguous(code, said, "answered")

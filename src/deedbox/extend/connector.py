"""The seam behind which every external effect is performed, ours and anyone's alike.

A connector is called outside any transaction, once per lease of an effect. It answers what it knows and never guesses:
an end after which the provider may have accepted is `Ambiguous`, however likely the failure looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from deedbox.model.backoff import Retry
from deedbox.model.failure import FailureClass

Capability = Literal["native_key", "upsert_key", "searchable", "blind"]
ORDER_BY = r"^(target|(/([^~/]|~[01])*)+)$"
"""How a target may be ordered: `target`, or a JSON pointer into the payload."""


@dataclass(frozen=True, slots=True)
class EffectOrder:
    """What a connector is given: values parsed from the approved body, and the identity that stays over resends.

    `effect_id` is stable over every attempt and is the native idempotency key; `attempt` counts the sendings.
    `deadline_s` bounds the whole call in seconds.
    """

    effect_id: str
    job_id: str
    tenant: str
    connector: str
    target: str
    slot: str
    payload: Mapping[str, Any]
    attempt: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """The provider accepted: its own id for the thing, and evidence safe to keep."""

    provider_id: str
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    phase: str = "accepted"


@dataclass(frozen=True, slots=True)
class Transient:
    """Surely not accepted: it may be sent again. `retry_after` in seconds is the provider's own wish."""

    failure_class: FailureClass
    code: str
    message: str
    phase: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Permanently not accepted: sending the same again cannot help."""

    failure_class: FailureClass
    code: str
    message: str
    phase: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """May have been accepted. `phase` is how far it got; `closed` says that this side ended the connection itself."""

    code: str
    message: str
    phase: str
    closed: bool = True


TARGET_GONE = "target_gone"
"""The code of a refusal after which the target is disabled: nothing more is sent to it until a person enables it again."""

Outcome = Receipt | Transient | Refused | Ambiguous


@dataclass(frozen=True, slots=True)
class LookUp:
    """What the provider says about an effect of ours when asked."""

    verdict: Literal["accepted", "not_accepted", "still_unknown"]
    provider_id: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """How a target is sent to: at most so often per second, so many at once after a pause, and in what order.

    `order_by` is `target` (one at a time, in the order of the outbox), a JSON pointer into the payload (the same, for each
    value there), or None.
    """

    rate_per_s: float | None = None
    burst: int | None = None
    order_by: str | None = None


@runtime_checkable
class SetsRetry(Protocol):
    """A connector whose effects are tried again at a pace of its own."""

    retry: Retry


@runtime_checkable
class Connector(Protocol):
    """Performs one kind of effect. Implementations must not retry by themselves and must honour `deadline_s`.

    An implementation may also have these methods, each about a target: `key_ttl_s` and `visibility_lag_s` (seconds: how long it
    remembers a native key, how late its look-up shows things), `can_be_asked` (False where a look-up never tells), `kept_under`
    (the name that its failures, rate and pauses are kept under; `*` for all targets of the connector together), `leads_to`
    (host and port that are dialled for it, None where none is set); and `limits` without arguments, which gives a
    `TargetLimits` for names of targets, or for `*`.

    The approval card shows a payload's fields in the order of `payload_model`, labelled with their titles where they have one.
    A connector may have a `kind` (`record`, `message`, `access` or `money`; else `record`), and `recipients(target, payload)`
    where the number of those it reaches cannot be counted from the fields `to`, `cc`, `bcc` and `recipients`.
    """

    name: str
    payload_model: type[BaseModel]

    def check_target(self, target: str) -> None:
        """Raise ValueError for a target this connector cannot address; called when an effect is planned, no I/O."""
        ...

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError where target and payload do not fit each other; called when an effect is planned, no I/O."""
        ...

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """One plain sentence for the approval card. Never written by a model."""
        ...

    def capability(self, target: str) -> Capability:
        """What an ambiguous end at this target can become."""
        ...

    async def send(self, order: EffectOrder) -> Outcome:
        """Perform the effect once and say how it ended. Must not raise for anything a provider does."""
        ...

    async def look_up(self, order: EffectOrder) -> LookUp:
        """Ask the provider whether it has the effect. A connector that cannot ask answers `still_unknown`."""
        ...

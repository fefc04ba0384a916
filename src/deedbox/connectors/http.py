"""JSON calls to named HTTP targets, each with a key that stays the same however often it is sent."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from deedbox.connectors.answers import (
    CLIENT_ERRORS,
    SUCCESS,
    UnreadableError,
    id_in,
    location_of,
    outcome_of,
    read_json,
    retry_after,
)
from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig
from deedbox.connectors.targets import MAX_PATH, HttpTargets, check_path, host_and_port
from deedbox.egress import Answer, EgressPolicy, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import (
    Ambiguous,
    Capability,
    EffectOrder,
    LookUp,
    Outcome,
    Receipt,
    Refused,
    TargetLimits,
    Transient,
)
from deedbox.model.failure import class_of_status

# These say that the request was passed by unread; 301 to 303 are answered after acting by many providers.
_REFUSED_REDIRECTS = frozenset({HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT})
_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT})
_LISTS = ("items", "results", "data")


class HttpCall(BaseModel):
    """One write at a target. Host, credentials and headers are the target's; a payload cannot name them.

    `path` is below the target's base URL and may have a query; `body` is any JSON value, none where it is null.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: Annotated[str, Field(max_length=MAX_PATH)]
    body: JsonValue = None

    @field_validator("path")
    @classmethod
    def _below_the_base(cls, value: str) -> str:
        return check_path(value)

    @field_validator("body")
    @classmethod
    def _sendable(cls, value: JsonValue) -> JsonValue:
        json_bytes(value)
        return value


@dataclass(frozen=True, slots=True)
class Prepared:
    """One write as it leaves. `thing` is what it makes or changes where the answer names nothing, None where none can tell."""

    method: str
    path: str
    content: bytes | None
    thing: str | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    sure_thing: bool = False
    """Whether `thing` is its name whatever the answer says."""


class HttpSender(ABC):
    """What the connectors of HTTP targets have in common; what an ambiguous end can become is the target's own declaration."""

    def __init__(self, name: str = "http") -> None:
        """`name` is what `ctx.effect` calls it."""
        self.name = name
        self._targets: HttpTargets | None = None

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take the targets from settings. A call still on the wire keeps what it started with."""
        self._targets = HttpTargets(settings, egress)

    async def aclose(self) -> None:
        """Close what is open."""
        if self._targets is not None:
            await self._targets.aclose()

    def check_target(self, target: str) -> None:
        """Raise ValueError for a target that settings do not name, or that another connector addresses."""
        self._config(target)

    def capability(self, target: str) -> Capability:
        """What the target declares; a native key that no conformance run has proven does not count."""
        config = self._config(target)
        if config.capability == "native_key" and config.proven is None:
            return "searchable" if config.conclusive else "blind"
        return config.capability

    def key_ttl_s(self, target: str) -> float | None:
        """How many seconds the target remembers a key, where it has native keys."""
        return self._config(target).key_ttl_s

    def visibility_lag_s(self, target: str) -> float:
        """How many seconds the target may take to show what it has accepted."""
        return self._config(target).visibility_lag_s

    def can_be_asked(self, target: str) -> bool:
        """Whether the target has a look-up."""
        return self._config(target).look_up is not None

    def leads_to(self, target: str) -> tuple[str, int] | None:
        """The host and port of the target's base URL."""
        config = self._bound().get(target)
        return None if config is None else host_and_port(config.base_url)

    def limits(self) -> dict[str, TargetLimits]:
        """What settings say of how the targets are sent to."""
        return self._bound().limits()

    async def send(self, order: EffectOrder) -> Outcome:
        """Make the call once, with `Idempotency-Key: <effect_id>`, within `order.deadline_s` seconds."""
        try:
            config = self._config(order.target)
            call = self.prepare(config, order)
        except ValueError:  # pydantic's ValidationError is one
            return Refused("caller_error", "payload_invalid", "The target or the call is not one that can be made.", "plan")
        try:
            answer = await self._bound().call(
                config,
                call.method,
                call.path,
                deadline_s=order.deadline_s,
                content=call.content,
                key=order.effect_id,
                extra=call.headers,
            )
        except (EgressRefused, NotSent, MaybeSent) as error:
            return outcome_of(error)
        return _outcome(config, call, answer)

    async def look_up(self, order: EffectOrder) -> LookUp:
        """GET where the target can be asked about the effect. Never raises for what a provider does."""
        try:
            config = self._config(order.target)
            path = self.look_up_path(config, order)
        except ValueError:
            return LookUp("still_unknown", evidence={"reason": "unknown_target"})
        if path is None:
            return LookUp("still_unknown", evidence={"reason": "no_look_up"})
        try:
            answer = await self._bound().call(config, "GET", path, deadline_s=order.deadline_s)
            return _found(config, order.effect_id, answer)
        except (EgressRefused, NotSent, MaybeSent) as error:
            return LookUp("still_unknown", evidence={"reason": error.code})
        except UnreadableError:
            return LookUp("still_unknown", evidence={"reason": "unreadable_answer"})

    @abstractmethod
    def prepare(self, config: HttpTargetConfig, order: EffectOrder) -> Prepared:
        """The write that an effect asks for. Raises ValueError where it asks for none that can be made."""

    def look_up_path(self, config: HttpTargetConfig, order: EffectOrder) -> str | None:
        """Where the target is asked about an effect; None where it cannot be."""
        return None if config.look_up is None else config.look_up.replace("{key}", quote(order.effect_id, safe=""))

    def fits(self, config: HttpTargetConfig) -> bool:
        """Whether this connector addresses the target."""
        return config.call is None

    def _bound(self) -> HttpTargets:
        if self._targets is None:
            raise ValueError(f"connector {self.name}: used before it was bound to settings")
        return self._targets

    def _config(self, target: str) -> HttpTargetConfig:
        config = self._bound().get(target)
        if config is None:
            raise ValueError(f"connector {self.name}: no target named {target!r} is set")
        if not self.fits(config):
            other = "Http()" if config.call is None else "HttpTemplate()"
            raise ValueError(f"connector {self.name}: the target {target!r} is addressed by {other}")
        return config


class Http(HttpSender):
    """Calls HTTP targets with whatever method, path and body a payload says."""

    payload_model: type[BaseModel] = HttpCall

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for a target that is not set or a payload that is not a call."""
        self.check_target(target)
        HttpCall.model_validate(dict(payload))

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Method, path and target, and which fields are sent."""
        call = HttpCall.model_validate(dict(payload))
        fields = f", with the fields {', '.join(sorted(call.body))}" if isinstance(call.body, dict) and call.body else ""
        return f"Sends {call.method} {call.path} to the target {target}{fields}."

    def prepare(self, config: HttpTargetConfig, order: EffectOrder) -> Prepared:  # noqa: ARG002 -- the signature it fills in
        """The call of the payload."""
        call = HttpCall.model_validate(dict(order.payload))
        # PUT, PATCH and DELETE name the thing by their path.
        thing = None if call.method == "POST" else call.path
        return Prepared(call.method, call.path, None if call.body is None else json_bytes(call.body), thing)


def json_bytes(value: JsonValue) -> bytes:
    """The bytes that leave. Raises ValueError for NaN, infinities and lone surrogates, which JSON cannot carry."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _found(config: HttpTargetConfig, key: str, answer: Answer) -> LookUp:
    """What the answer to a look-up says. Raises UnreadableError."""
    evidence = {"status": answer.status}
    absent = config.conclusive or config.capability in {"searchable", "upsert_key"}
    not_there = LookUp("not_accepted" if absent else "still_unknown", evidence=evidence)
    if answer.status == HTTPStatus.NOT_FOUND:
        return not_there
    if answer.status != HTTPStatus.OK:
        return LookUp("still_unknown", evidence=evidence)
    value: Any = read_json(answer.body)
    rows = _rows(value)
    if rows == []:
        return not_there
    if rows is not None:
        # A search that ignores the key answers with whatever it has: only a row that carries the key counts.
        objects = [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]
        mine = [row for row in objects if key in row.values()]
        value = mine[0] if len(mine) == 1 else None
    provider_id = id_in(value, config.receipt_id)
    if provider_id is None and config.capability == "upsert_key" and isinstance(value, dict):
        provider_id = key  # it was asked for by its name, which is the key
    return LookUp("accepted" if provider_id else "still_unknown", provider_id, evidence)


def _rows(value: Any) -> list[Any] | None:
    """The rows of a search's answer: a list, or one under a usual name; None for a single thing."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if isinstance(value, dict):
        for name in _LISTS:
            inner = cast("dict[str, Any]", value).get(name)
            if isinstance(inner, list):
                return cast("list[Any]", inner)
    return None


def _outcome(config: HttpTargetConfig, call: Prepared, answer: Answer) -> Outcome:
    """What a whole answer means: accepted, refused, not taken, or not to be told."""
    status = answer.status
    code, said = f"http_{status}", f"The target {config.name} answered {status}."
    if status in SUCCESS:
        return _receipt(config, call, answer)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Transient("rate_limited", code, said, "answered", retry_after(answer))
    if status in config.not_taken:
        return Transient("not_sent", code, said, "answered", retry_after(answer))
    failure_class = class_of_status(status)
    if failure_class == "denied":
        return Refused("denied", code, said, "answered")
    final = status in CLIENT_ERRORS and status != HTTPStatus.CONFLICT and failure_class == "caller_error"
    if final or status in _REFUSED_REDIRECTS:
        return Refused("caller_error", code, said, "answered")
    # 409 to our own key says that it has been seen before: look up. 408, 425, 5xx and the rest may come after acting.
    return Ambiguous(code, said, "answered")


def _receipt(config: HttpTargetConfig, call: Prepared, answer: Answer) -> Outcome:
    """A 2xx is a receipt only where it says what it is a receipt for."""
    said = f"The target {config.name} accepted, but "
    evidence: dict[str, Any] = {"status": answer.status}
    location = location_of(answer)
    if location is not None:
        evidence["location"] = location
    provider_id: str | None = None
    if answer.status not in _NO_BODY:
        try:
            provider_id = id_in(read_json(answer.body), config.receipt_id)
        except UnreadableError:
            return Ambiguous("unreadable_receipt", f"{said}its receipt cannot be read.", "answered")
    # A 204 can say no more than the path that it answers.
    named = call.thing or (call.path if answer.status in _NO_BODY else None)
    provider_id = provider_id or (call.thing if call.sure_thing else None) or location or named
    if provider_id is None:
        return Ambiguous("receipt_without_id", f"{said}did not say what it made.", "answered")
    return Receipt(provider_id, evidence)

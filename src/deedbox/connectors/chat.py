"""What messages to chats have in common: how a connector of them is bound, which text can be sent, and what a status says."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel

from deedbox.connectors.answers import CLIENT_ERRORS, SUCCESS, outcome_of, retry_after
from deedbox.connectors.settings import ConnectorSettings
from deedbox.connectors.targets import host_and_port
from deedbox.egress import Answer, EgressClient, EgressPolicy, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, Outcome, Refused, Transient
from deedbox.model.failure import class_of_status

Config = TypeVar("Config", bound=BaseModel)
Message = TypeVar("Message", bound=BaseModel)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_UNCLEAR = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})


class Chat(ABC, Generic[Config, Message]):
    """A connector that writes to one service's chats with a token from settings. Capability: blind."""

    payload_model: type[BaseModel]
    unset: ClassVar[str]
    """What is said where settings name no token."""
    most: ClassVar[int]
    """How many characters an announcement has at most."""

    def __init__(self, name: str) -> None:
        """`name` is what `ctx.effect` calls it."""
        self.name = name
        self._config: Config | None = None
        self._client: EgressClient | None = None

    @abstractmethod
    def config_in(self, settings: ConnectorSettings) -> Config | None:
        """The service's own part of the settings."""

    @abstractmethod
    def check_address(self, target: str) -> None:
        """Raise ValueError unless the service has targets of this form."""

    @abstractmethod
    async def post(self, config: Config, client: EgressClient, order: EffectOrder, message: Message) -> Outcome:
        """Send the message once, within `order.deadline_s` seconds."""

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take the token from settings; without one every target is refused when an effect is planned."""
        self._config = self.config_in(settings)
        self._client = EgressClient(egress)

    async def aclose(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.aclose()

    def check_target(self, target: str) -> None:
        """Raise ValueError unless a token is set and the service has targets of this form."""
        if self._config is None:
            raise ValueError(f"connector {self.name}: {self.unset[0].lower()}{self.unset[1:]}")
        self.check_address(target)

    def leads_to(self, target: str) -> tuple[str, int] | None:  # noqa: ARG002 -- every chat is behind the same host
        """The service's host and port."""
        url: str | None = getattr(self._config, "base_url", None)
        return None if url is None else host_and_port(url)

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for a target that is no chat or a payload that is no message."""
        self.check_target(target)
        self.read(payload)

    def read(self, payload: Mapping[str, Any]) -> Message:
        """The message that a payload is. Raises ValueError where it is none."""
        return cast("Message", self.payload_model.model_validate(dict(payload)))

    def announcement(self, target: str, subject: str, body: str) -> dict[str, Any]:  # noqa: ARG002 -- what a connector may offer
        """A message with the subject first, cut where it is too long for one."""
        return {"text": f"{subject}\n{body}"[: self.most]}

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Always blind."""
        return "blind"

    async def send(self, order: EffectOrder) -> Outcome:
        """Send once, within `order.deadline_s` seconds; what cannot be sent is refused before anything is asked."""
        config, client = self._config, self._client
        if config is None or client is None:
            service = type(self).__name__.lower()
            return Refused("caller_error", f"{service}_not_configured", f"{self.unset}.", "plan")
        try:
            self.check_target(order.target)
            message = self.read(order.payload)
        except ValueError:  # pydantic's ValidationError is one
            return Refused("caller_error", "payload_invalid", "The message is not one that can be sent.", "plan")
        return await self.post(config, client, order, message)


def unsendable(text: str) -> str:
    """The text unchanged; raises ValueError where it has control characters besides line ends and tabs, or says nothing."""
    if _CONTROL.search(text):
        raise ValueError("a message has no control characters but line ends and tabs")
    if not text.strip():
        raise ValueError("a message says something")
    return text


async def ask(
    client: EgressClient, url: str, content: bytes, *, deadline_s: float, headers: Mapping[str, str]
) -> Answer | Outcome:
    """POST JSON once; the answer, or what its absence means. Neither the URL nor a header is in anything that comes back."""
    sent = {"Content-Type": "application/json; charset=utf-8", "Accept": "application/json", **headers}
    try:
        return await client.request("POST", url, headers=sent, content=content, deadline_s=deadline_s)
    except (EgressRefused, NotSent, MaybeSent) as error:
        return outcome_of(error)


def refusal_of_status(answer: Answer, service: str, *, wait_s: float | None = None) -> Outcome | None:
    """What a status other than 2xx means, None for a 2xx. `wait_s` is what the body asks to wait, in seconds."""
    status = answer.status
    code, said = f"{service}_{status}", f"{service.capitalize()} answered {status}."
    if status in SUCCESS:
        return None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = retry_after(answer)
        return Transient("rate_limited", code, said, "answered", wait_s if wait is None else wait)
    if status in CLIENT_ERRORS and status not in _UNCLEAR:
        denied = class_of_status(status) == "denied"
        return Refused("denied" if denied else "caller_error", code, said, "answered")
    return Ambiguous(code, said, "answered")

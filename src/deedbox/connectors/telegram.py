"""Messages to Telegram chats, through `sendMessage`.

The bot API has neither a key nor a way to ask what was sent: a message is `blind`. Its token is a part of the address that is
called; nothing that comes back from here has the address in it, and what Telegram says is kept without the token.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, field_validator

from deedbox.connectors.answers import RETRY_AFTER_CAP_S, UnreadableError, read_json
from deedbox.connectors.chat import ask, refusal_of_status, unsendable
from deedbox.connectors.http import json_bytes
from deedbox.connectors.settings import ConnectorSettings
from deedbox.egress import Answer, EgressClient, EgressPolicy
from deedbox.extend.connector import Ambiguous, Capability, EffectOrder, LookUp, Outcome, Receipt, Refused

if TYPE_CHECKING:
    from deedbox.connectors.chat_settings import TelegramConfig

_CHAT = re.compile(r"-?[1-9][0-9]{0,19}|@[A-Za-z][A-Za-z0-9_]{3,31}")
# Telegram makes mentions, tags and commands out of plain text by itself. After each of their signs stands a word joiner, which
# nobody sees, and which makes them text.
_SIGN = re.compile(r"((?<![A-Za-z0-9_])[@#$]|(?<![A-Za-z0-9_/])/)(?=\w)")
WORD_JOINER = "\u2060"
_LONGEST = 4096


class TelegramMessage(BaseModel):
    """A message. The effect's target is the chat's number, or `@name` of a public channel; the text is shown as it is."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: Annotated[str, StringConstraints(min_length=1, max_length=_LONGEST), Field(title="Text")]
    silent: Annotated[bool, Field(title="Without a sound")] = False

    @field_validator("text")
    @classmethod
    def _sendable(cls, value: str) -> str:
        if len(plain(unsendable(value)).encode("utf-16-le")) > 2 * _LONGEST:
            raise ValueError(f"a message has at most {_LONGEST} characters, those counted that keep mentions from being made")
        return value


class Telegram:
    """Writes to Telegram chats with the bot's token from settings. Capability: blind."""

    payload_model: type[BaseModel] = TelegramMessage

    def __init__(self, name: str = "telegram") -> None:
        """`name` is what `ctx.effect` calls it."""
        self.name = name
        self._config: TelegramConfig | None = None
        self._client: EgressClient | None = None

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take the token from settings; without one every target is refused when an effect is planned."""
        self._config = settings.telegram
        self._client = EgressClient(egress)

    async def aclose(self) -> None:
        """Close what is open."""
        if self._client is not None:
            await self._client.aclose()

    def check_target(self, target: str) -> None:
        """Raise ValueError unless the target is a chat, and a token is set."""
        if self._config is None:
            raise ValueError(f"connector {self.name}: no Telegram bot is set")
        if not _CHAT.fullmatch(target):
            raise ValueError("target: must be the number of a chat, or @name of a public channel")

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for a target that is no chat or a payload that is no message."""
        self.check_target(target)
        TelegramMessage.model_validate(dict(payload))

    def announcement(self, target: str, subject: str, body: str) -> dict[str, Any]:  # noqa: ARG002 -- what a connector may offer
        """A message with the subject first, cut where it is too long for one."""
        return {"text": f"{subject}\n{body}"[: _LONGEST // 2]}

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Which chat gets a message of which length."""
        message = TelegramMessage.model_validate(dict(payload))
        return f"Sends a message of {len(message.text)} characters to the Telegram chat {target}."

    def capability(self, target: str) -> Capability:  # noqa: ARG002 -- the protocol's signature
        """Always blind."""
        return "blind"

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """A bot cannot read what it wrote."""
        return LookUp("still_unknown")

    async def send(self, order: EffectOrder) -> Outcome:
        """Send once, within `order.deadline_s` seconds."""
        config, client = self._config, self._client
        if config is None or client is None:
            return Refused("caller_error", "telegram_not_configured", "No Telegram bot is set.", "plan")
        try:
            self.check_target(order.target)
            message = TelegramMessage.model_validate(dict(order.payload))
        except ValueError:  # pydantic's ValidationError is one
            return Refused("caller_error", "payload_invalid", "The message is not one that can be sent.", "plan")
        content: JsonValue = {
            "chat_id": order.target if order.target.startswith("@") else int(order.target),
            # No parse_mode: nothing in it is markup.
            "text": plain(message.text),
            "disable_notification": message.silent,
            "link_preview_options": {"is_disabled": True},
        }
        token = config.token.get_secret_value()
        url = f"{config.base_url}/bot{token}/sendMessage"
        answered = await ask(client, url, json_bytes(content), deadline_s=order.deadline_s, headers={})
        return _outcome(answered, token) if isinstance(answered, Answer) else answered


def plain(text: str) -> str:
    """Text out of which Telegram makes no mention, tag or command; it looks the same."""
    return _SIGN.sub(lambda match: match[1] + WORD_JOINER, text)


def _outcome(answer: Answer, token: str) -> Outcome:
    try:
        said: Any = read_json(answer.body)
    except UnreadableError:
        said = None
    found = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    of_status = refusal_of_status(answer, "telegram", wait_s=_wait(found))
    if isinstance(of_status, Refused):
        why = _described(found, token)
        # A wrong token is a path that Telegram does not know.
        denied = of_status.failure_class == "denied" or answer.status == HTTPStatus.NOT_FOUND
        return Refused("denied" if denied else "caller_error", of_status.code, of_status.message + why, of_status.phase)
    if of_status is not None:
        return of_status
    match found:
        case {"ok": True, "result": {"message_id": int() as message_id, "chat": {"id": int() as chat}}}:
            return Receipt(f"{chat}/{message_id}", {"chat_id": str(chat), "message_id": str(message_id)})
        case _:
            return Ambiguous("unreadable_receipt", "Telegram accepted, but its receipt cannot be read.", "answered")


def _wait(found: Mapping[str, Any]) -> float | None:
    match found:
        case {"parameters": {"retry_after": int() as wait}} if wait > 0:
            return min(float(wait), RETRY_AFTER_CAP_S)
        case _:
            return None


def _described(found: Mapping[str, Any], token: str) -> str:
    text = found.get("description")
    if not isinstance(text, str):
        return ""
    clean = "".join(char if char.isprintable() else " " for char in text.replace(token, "…"))[:200].strip()
    return f" It said: {clean}" if clean else ""

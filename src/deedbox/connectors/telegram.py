"""Messages to Telegram chats, through `sendMessage`.

The bot API has neither a key nor a way to ask what was sent: a message is `blind`. Its token is a part of the address that is
called; nothing that comes back from here has the address in it, and what Telegram says is kept without the token.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, field_validator

from deedbox.connectors.answers import RETRY_AFTER_CAP_S, UnreadableError, read_json
from deedbox.connectors.chat import Chat, ask, refusal_of_status, unsendable
from deedbox.connectors.http import json_bytes
from deedbox.connectors.settings import ConnectorSettings
from deedbox.egress import Answer, EgressClient
from deedbox.extend.connector import Ambiguous, EffectOrder, LookUp, Outcome, Receipt, Refused

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


class Telegram(Chat["TelegramConfig", TelegramMessage]):
    """Writes to Telegram chats with the bot's token from settings. Capability: blind."""

    payload_model: type[BaseModel] = TelegramMessage
    unset: ClassVar[str] = "No Telegram bot is set"
    most: ClassVar[int] = _LONGEST // 2

    def __init__(self, name: str = "telegram") -> None:
        """`name` is what `ctx.effect` calls it."""
        super().__init__(name)

    def config_in(self, settings: ConnectorSettings) -> "TelegramConfig | None":
        """The bot."""
        return settings.telegram

    def check_address(self, target: str) -> None:
        """Raise ValueError unless the target is a chat."""
        if not _CHAT.fullmatch(target):
            raise ValueError("target: must be the number of a chat, or @name of a public channel")

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Which chat gets a message of which length."""
        return f"Sends a message of {len(self.read(payload).text)} characters to the Telegram chat {target}."

    async def look_up(self, order: EffectOrder) -> LookUp:  # noqa: ARG002 -- the protocol's signature
        """A bot cannot read what it wrote."""
        return LookUp("still_unknown")

    async def post(
        self, config: "TelegramConfig", client: EgressClient, order: EffectOrder, message: TelegramMessage
    ) -> Outcome:
        """Send once, within `order.deadline_s` seconds."""
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

"""What the chat connectors are told by settings: a bot's token each, never taken from a payload."""

import re

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from deedbox.egress import EgressRefused, check_url

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_SLACK_TOKEN = re.compile(r"[A-Za-z0-9-]{8,500}")
_TELEGRAM_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{8,200}")


def _address(value: str) -> str:
    """The URL without its last slash; raises ValueError where a token would travel in the clear, or that cannot be read."""
    try:
        url = check_url(value)
    except EgressRefused as error:
        raise ValueError(error.message) from error
    if url.query or url.fragment:
        raise ValueError("base_url: must not have a query or a fragment")
    if url.scheme != "https" and url.host not in LOOPBACK:
        raise ValueError("base_url: must be https, or http on loopback: a token is not sent in the clear")
    return value.rstrip("/")


class SlackConfig(BaseModel):
    """The Slack app that `Slack()` writes as."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: SecretStr = Field(description="Bot token with the scope chat:write.")
    base_url: str = "https://slack.com/api"
    history: bool = Field(default=False, description="Look messages up in the channel's history; needs a scope for that, too.")

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        return _address(value)

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        if not _SLACK_TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError("token: is not one of a Slack app")
        return value


class TelegramConfig(BaseModel):
    """The Telegram bot that `Telegram()` writes as."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: SecretStr = Field(description="Token of the bot. It is a part of every address that is called, and is never shown.")
    base_url: str = "https://api.telegram.org"

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        return _address(value)

    @field_validator("token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        if not _TELEGRAM_TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError("token: is not one of a Telegram bot")
        return value

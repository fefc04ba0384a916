"""What the built-in connectors are told by settings: destinations and credentials, never taken from a payload."""

import re
from typing import Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from deedbox.connectors.addresses import check_mail_address, mail_domain
from deedbox.connectors.answers import SERVER_ERRORS
from deedbox.connectors.callback_settings import CallbackConfig
from deedbox.connectors.chat_settings import SlackConfig, TelegramConfig
from deedbox.connectors.signing import SigningSecrets
from deedbox.connectors.template import KEY, HttpTemplate, check_places
from deedbox.egress import EgressPolicy, EgressRefused, check_url, parse_host
from deedbox.extend.connector import ORDER_BY

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PROVEN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} by \S.*")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Headers that say where a request goes, how long it is or which effect it is belong to Deedbox alone.
_OWN_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "idempotency-key",
        "accept-encoding",
        "expect",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    }
)


class SmtpConfig(BaseModel):
    """The mail server that `Smtp()` hands mail to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    port: int = Field(default=587, ge=1, le=65535)
    sender: str = Field(description="The address that mail comes from, and that bounces go to.")
    sender_name: str | None = Field(default=None, max_length=100)
    security: Literal["none", "starttls", "tls"] = "starttls"
    username: str | None = None
    password: SecretStr | None = None
    message_domain: str | None = Field(default=None, description="Right side of Message-ID; default the sender's domain.")
    ca_file: str | None = Field(default=None, description="Certificates to trust besides the system's.")
    rate_per_s: float | None = Field(default=None, gt=0, le=100_000, allow_inf_nan=False, description="Mails per second.")
    burst: int | None = Field(default=None, ge=1, le=100_000, description="Mails at once after a pause.")
    order_by: Literal["target"] | None = Field(default=None, description="`target`: mails to one recipient in order.")

    @field_validator("host")
    @classmethod
    def _plain_host(cls, value: str) -> str:
        return _host(value)

    @field_validator("sender")
    @classmethod
    def _plain_sender(cls, value: str) -> str:
        return check_mail_address(value)

    @field_validator("sender_name")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("sender_name: must be printable and in one line")
        return value

    @field_validator("message_domain")
    @classmethod
    def _plain_domain(cls, value: str | None) -> str | None:
        return None if value is None else _host(value)

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password: set both or neither")
        if self.burst is not None and self.rate_per_s is None:
            raise ValueError("burst: needs rate_per_s")
        if self.username is not None and self.security == "none":
            raise ValueError("username: a password is not sent over a connection without TLS")
        return self

    @property
    def domain(self) -> str:
        """The right side of Message-ID, and the name said in EHLO."""
        return self.message_domain or mail_domain(self.sender)


class HttpTargetConfig(BaseModel):
    """One named destination of `Http()`, and what it declares about itself.

    What declares nothing is `blind`. `native_key` counts only with `proven`, which says when and by whom the target
    passed the conformance run; until then an ambiguous end is `unknown`. `look_up` is a path with `{key}` in it; its
    404 is believed for `searchable` and `upsert_key` targets, and for others only with `conclusive`. With `call` the target
    is one of `HttpTemplate()`, whose payloads are values alone. `upsert_key` needs a `call` that PUTs the thing under a path
    with `{effect_id}` in it, and is looked up there unless `look_up` says where.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    base_url: str
    bearer: SecretStr | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    capability: Literal["blind", "native_key", "upsert_key", "searchable"] = "blind"
    proven: str | None = Field(default=None, description="The passed conformance run: `2026-01-31 by` whoever answers for it.")
    key_ttl_s: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="How long the target knows a key.")
    look_up: str | None = None
    conclusive: bool = False
    receipt_id: str = Field(default="id", min_length=1, description="Field of the answer that names the created thing.")
    not_taken: frozenset[int] = Field(default=frozenset(), description="5xx statuses after which surely nothing was done.")
    call: HttpTemplate | None = Field(default=None, description="How calls are made, with places for an effect's values.")
    signing: SigningSecrets = Field(default=(), description="Secrets (whsec_…) that each write is signed with, two at most.")
    visibility_lag_s: float = Field(default=0.0, ge=0, le=86400, description="How late its look-up shows what it accepted.")
    rate_per_s: float | None = Field(default=None, gt=0, le=100_000, allow_inf_nan=False, description="Sendings per second.")
    burst: int | None = Field(default=None, ge=1, le=100_000, description="Sendings at once after a pause.")
    order_by: str | None = Field(
        default=None, pattern=ORDER_BY, max_length=200, description="`target` or a JSON pointer: one at a time, in order."
    )

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        try:
            url = check_url(value)
        except EgressRefused as error:
            raise ValueError(error.message) from error
        if url.query or url.fragment:
            raise ValueError("base_url: must not have a query or a fragment")
        return value.rstrip("/")

    @field_validator("bearer")
    @classmethod
    def _plain_bearer(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _VALUE.fullmatch(value.get_secret_value()):
            raise ValueError("bearer: must be printable ASCII in one line")
        return value

    @field_validator("proven")
    @classmethod
    def _day_and_person(cls, value: str | None) -> str | None:
        if value is not None and not (_PROVEN.fullmatch(value) and value.isprintable()):
            raise ValueError("proven: a day and who answers for the run, as in `2026-01-31 by Ada`")
        return value

    @field_validator("headers")
    @classmethod
    def _plain_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, secret in value.items():
            if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise ValueError(f"headers: {name!r} cannot be set")
            if not _VALUE.fullmatch(secret.get_secret_value()):
                raise ValueError(f"headers: the value of {name!r} must be printable ASCII in one line")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """A rule without the one it needs stops the start, instead of being dropped in silence."""
        if self.bearer is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("bearer: headers already carry an Authorization")
        if self.look_up is not None and (not self.look_up.startswith("/") or "{key}" not in self.look_up):
            raise ValueError("look_up: must be a path that begins with / and has {key} in it")
        if self.look_up is not None and self.call is not None:
            check_places(self.look_up.replace("{key}", ""), "look_up")
        if self.capability == "upsert_key" and (self.call is None or self.call.method != "PUT" or KEY not in self.call.path):
            raise ValueError(f"upsert_key: needed is a call that PUTs a path with {KEY} in it")
        if self.call is not None:
            self._distinct_headers(self.call)
        if self.look_up is None and (self.capability == "searchable" or self.conclusive):
            raise ValueError("look_up: needed by a searchable or conclusive target")
        if self.capability == "native_key" and self.key_ttl_s is None:
            raise ValueError("key_ttl_s: needed by a native_key target")
        if self.burst is not None and self.rate_per_s is None:
            raise ValueError("burst: needs rate_per_s")
        if any(status not in SERVER_ERRORS for status in self.not_taken):
            raise ValueError("not_taken: only 5xx statuses can be listed")
        return self

    def _distinct_headers(self, call: HttpTemplate) -> None:
        own = _OWN_HEADERS | {"accept"} | {name.lower() for name in self.headers}
        for name in call.headers:
            taken = name.lower() in own or (self.bearer is not None and name.lower() == "authorization")
            if taken or not _HEADER.fullmatch(name):
                raise ValueError(f"call: the header {name!r} cannot be set here")


class ConnectorSettings(BaseModel):
    """Everything the built-in connectors are bound to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    smtp: SmtpConfig | None = None
    http: tuple[HttpTargetConfig, ...] = ()
    slack: SlackConfig | None = None
    telegram: TelegramConfig | None = None
    callbacks: tuple[CallbackConfig, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for kind, named in (("http", self.http), ("callbacks", self.callbacks)):
            names = [target.name for target in named]
            if len(set(names)) != len(names):
                raise ValueError(f"{kind}: two targets have the same name")
        return self


@runtime_checkable
class Bindable(Protocol):
    """A connector that wiring gives settings and the egress policy before use, and closes at the end."""

    def bind(self, settings: ConnectorSettings, egress: EgressPolicy) -> None:
        """Take settings; called once per process before any other method. Raises ValueError where they do not fit."""
        ...

    async def aclose(self) -> None:
        """Let go of what is open."""
        ...


def _host(value: str) -> str:
    try:
        return str(parse_host(value))
    except EgressRefused as error:
        raise ValueError(error.message) from error

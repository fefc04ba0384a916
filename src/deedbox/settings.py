"""The only reader of the environment: every setting is `DEEDBOX_…`, but for the switch, which is `AI_ACTIONS_ENABLED`."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from deedbox.access.bearer_settings import BearerConfig
from deedbox.access.provider_settings import ProviderConfig
from deedbox.connectors.callback_settings import CallbackConfig
from deedbox.connectors.chat_settings import SlackConfig, TelegramConfig
from deedbox.connectors.settings import ConnectorSettings, HttpTargetConfig, SmtpConfig
from deedbox.dispatch.switch import environment_half
from deedbox.model.addresses import check_mail_address
from deedbox.model.alarms import ANY, CAUSES
from deedbox.model.lease import Lease
from deedbox.store.reconcile import LookUps
from deedbox.store.targets import Breaker
from deedbox.telemetry import PayloadLog
from deedbox.worker.model_settings import DEFAULT, ModelConfig, check_endpoints

LOOPBACK = ("http://127.0.0.1", "http://localhost", "http://[::1]")


class Settings(BaseSettings):
    """Everything that can be set from outside. Raises pydantic.ValidationError naming each field that is wrong."""

    model_config = SettingsConfigDict(env_prefix="DEEDBOX_", extra="ignore", frozen=True)

    database_url: SecretStr | None = Field(
        default=None, description="PostgreSQL of your own (15 to 18); unset: the embedded one."
    )
    direct_url: SecretStr | None = Field(
        default=None,
        description="URL past a pooler, for what needs a session (listener, heartbeat); default: the database URL.",
    )
    migrate_url: SecretStr | None = Field(
        default=None, description="URL of a user who may create tables and roles; default: the direct URL."
    )
    state: Path = Field(default=Path(".deedbox"), description="Directory of the embedded PostgreSQL.")
    prepare_statements: bool = Field(default=True, description="Off for a pooler that cannot keep prepared statements.")
    pool_size: int = Field(
        default=10, ge=3, le=200, description="Connections of a process's pool; it has up to seven of its own besides (ADR 12)."
    )
    host: str = Field(default="127.0.0.1", description="Address the HTTP server listens on.")
    port: int = Field(default=8484, ge=0, le=65535, description="Port the HTTP server listens on; 0 picks a free one.")
    public_url: str = Field(
        default="http://127.0.0.1:8484", description="How others reach this server; links are made from it, never from Host."
    )
    tenant: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="Tenant that people log in to.")
    local_accounts: bool = Field(
        default=True, description="Off: nobody logs in with a password, on the console, the API or the command line."
    )
    oidc: tuple[ProviderConfig, ...] = Field(
        default=(), description='OpenID providers as a JSON list: [{"name": …, "issuer": …, "client_id": …, "roles": {…}}].'
    )
    bearer: tuple[BearerConfig, ...] = Field(
        default=(), description='Issuers of access tokens as a JSON list: [{"name": …, "issuer": …, "roles": {…}}].'
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level that is logged.")
    log_payloads: bool = Field(
        default=False,
        description="Log inputs, prompts and answers at level debug; refuses to start without the three that follow.",
    )
    log_payloads_keep_days: float | None = Field(
        default=None, gt=0, le=365, description="Days after which whoever keeps the logs removes those of payloads."
    )
    log_payloads_readers: tuple[str, ...] = Field(
        default=(), description="Who may read them, as a JSON list of people or groups; it stands in every such line."
    )
    log_payloads_masks: tuple[str, ...] = Field(
        default=(), description="Members that are masked in them at any depth, as a JSON list, beside the sensitive ones."
    )
    scan_uploads: bool = Field(
        default=False, description="Look for secrets in uploaded documents that hold text, in the first MiB of each."
    )
    max_json_bytes: int = Field(default=1 << 20, ge=1024, description="Largest JSON body, in bytes.")
    max_upload_bytes: int = Field(default=25 << 20, ge=1024, description="Largest uploaded document, in bytes.")
    max_waiting: int = Field(default=1_000_000, ge=1, description="Jobs that may wait per action and tenant.")
    lease_s: float = Field(
        default=30.0, description="Lease of an attempt in seconds; beat, self-fence and sweep follow from it."
    )
    worker_slots: int = Field(default=64, ge=1, le=5000, description="Attempts at once in one worker process.")
    worker_queues: tuple[str, ...] = Field(
        default=(), description='Queues that workers serve, as a JSON list such as ["default"]; none: those of their actions.'
    )
    drain_s: float = Field(default=20.0, ge=0, le=3600, description="Seconds for attempts under way when told to stop.")
    send_slots: int = Field(default=16, ge=1, le=500, description="Effects on the wire at once in one process.")
    send_lease_s: float = Field(default=60.0, gt=1, le=3600, description="Lease of one sending, in seconds.")
    breaker_failures: int = Field(
        default=5, ge=0, le=1000, description="Failures in a row after which a target is left alone; 0 never does."
    )
    breaker_window_s: float = Field(default=60.0, gt=0, le=86400, description="Longest time between two of them, in seconds.")
    breaker_open_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Seconds until it is tried again; doubled each time that fails, up to half an hour.",
    )
    look_up_first_s: float = Field(
        default=30.0,
        gt=0,
        le=86400,
        description="Seconds until an unknown effect is looked up; then doubled each time, up to a day.",
    )
    look_up_tries: int = Field(
        default=16, ge=0, le=100, description="Look-ups of an unknown effect before it is left to people."
    )
    keep_days: float = Field(
        default=90.0, gt=0, le=3650, description="Days that contents stay after a job has ended; an action may say otherwise."
    )
    keep_records_days: float = Field(
        default=400.0, ge=31, le=36500, description="Days that records stay: who, when, digests, receipts, decisions."
    )
    model_base_url: str | None = Field(
        default=None, description="OpenAI-compatible endpoint, for example http://127.0.0.1:8000/v1."
    )
    model_api_key: SecretStr | None = Field(default=None, description="Bearer key of the model endpoint.")
    model_name: str | None = Field(default=None, description="Model to ask for.")
    model_timeout_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Longest time one request to the model may take, in seconds; less once its answers have been measured.",
    )
    model_repairs: int = Field(default=1, ge=0, le=3, description="Repairs of an invalid answer within one attempt.")
    models: tuple[ModelConfig, ...] = Field(
        default=(),
        description='Named model endpoints as a JSON list: [{"name": "hermes", "base_url": …, "model": …, "api_key": …}]; '
        "the first is asked where none is named, unless DEEDBOX_MODEL_BASE_URL is set.",
    )
    model_currency: str = Field(
        default="USD", pattern=r"^[A-Z]{3}$", description="The currency of the prices of model endpoints (ISO 4217)."
    )
    smtp: SmtpConfig | None = Field(default=None, description='Mail server as JSON: {"host": …, "port": …, "sender": …}.')
    targets: tuple[HttpTargetConfig, ...] = Field(
        default=(), description='HTTP targets as a JSON list: [{"name": "crm", "base_url": …, "bearer": …}].'
    )
    notify_mail: bool = Field(
        default=False,
        description="Write to the people who may decide when an approval waits, with reminders; needs DEEDBOX_SMTP.",
    )
    notify_remind_at: tuple[float, ...] = Field(
        default=(0.5, 0.9), description="Parts of an approval's time after which people are reminded, as a JSON list."
    )
    alerts_to: dict[str, tuple[str, ...]] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description='Owners of alerts by cause, as JSON: {"default": ["ops@example.org"], "effect_unknown": ["slack:ops"]}; '
        "each a mail address, or connector:target.",
    )
    alerts_remind_s: float = Field(
        default=14400.0, ge=60, le=30 * 86400, description="Seconds after which the owner of an open alert is told again."
    )
    alerts_reminders: int = Field(default=3, ge=0, le=20, description="How often the owner of an open alert is told again.")
    alerts_unknown_s: float = Field(
        default=3600.0, gt=0, le=365 * 86400, description="Seconds after which an effect that is still unknown is an alert."
    )
    alerts_queued_s: float = Field(
        default=900.0, gt=0, le=365 * 86400, description="Seconds after which jobs that are due and wait are an alert."
    )
    slack: SlackConfig | None = Field(default=None, description='Slack app as JSON: {"token": …}.')
    telegram: TelegramConfig | None = Field(default=None, description='Telegram bot as JSON: {"token": …}.')
    callbacks: tuple[CallbackConfig, ...] = Field(
        default=(), description='Receivers of callbacks as a JSON list: [{"name": "shop", "url": …, "secrets": ["whsec_…"]}].'
    )
    egress_allow: Annotated[frozenset[str], NoDecode] = Field(
        default=frozenset(), description="Own hosts, host:port or networks that may be dialled although private; by commas."
    )
    mcp: bool = Field(default=True, description="Serve the MCP face at /mcp beside the HTTP API.")
    mcp_hosts: Annotated[frozenset[str], NoDecode] = Field(
        default=frozenset(),
        description="Further values of Host that /mcp answers to, beside loopback and the public URL's; `:*`: any port.",
    )
    mcp_origins: Annotated[frozenset[str], NoDecode] = Field(
        default=frozenset(), description="Further origins whose pages may call /mcp, such as https://chat.example; by commas."
    )
    actions_enabled: bool = Field(
        default=False,
        validation_alias="AI_ACTIONS_ENABLED",
        description="The environment half of the switch: only `true` is on.",
    )

    @field_validator("egress_allow", "mcp_hosts", "mcp_origins", mode="before")
    @classmethod
    def _by_commas(cls, value: object) -> object:
        return frozenset(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("oidc", "bearer", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [cast("object", value)] if isinstance(value, dict) else value

    @field_validator("actions_enabled", mode="before")
    @classmethod
    def _exactly_true(cls, value: object) -> bool:
        # `1`, `yes`, `TRUE` and anything misspelt are off: a switch for what leaves the house is not guessed at.
        return value is True or environment_half(value if isinstance(value, str) else None)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.public_url.startswith(("https://", *LOOPBACK)):
            raise ValueError("public_url: must be https, or http on loopback: approval links are never sent in the clear")
        if len({provider.name for provider in self.oidc}) != len(self.oidc):
            raise ValueError("oidc: two providers have one name")
        if len({one.issuer for one in self.bearer}) != len(self.bearer) or len({one.name for one in self.bearer}) != len(
            self.bearer
        ):
            raise ValueError("bearer: two issuers have one name, or one issuer stands there twice")
        _ = self.bearer_issuers
        if not self.local_accounts and not self.oidc:
            raise ValueError("local_accounts: off without a provider in oidc, so nobody could log in")
        if (self.model_base_url is None) != (self.model_name is None):
            raise ValueError("model_base_url and model_name: set both or neither")
        check_endpoints(self.endpoints)
        if self.keep_records_days < self.keep_days:
            raise ValueError("keep_records_days: must not be below keep_days: what is kept longest is the record")
        if self.log_payloads and not (self.log_payloads_keep_days and self.log_payloads_readers and self.log_payloads_masks):
            raise ValueError(
                "log_payloads: set log_payloads_keep_days, log_payloads_readers and log_payloads_masks first: "
                "payloads are not logged before it is said for how long, for whom and without what"
            )
        Lease(self.lease_s, max(self.lease_s, 3600.0))
        self._notices()
        return self

    def _notices(self) -> None:
        """A rule without the one it needs stops the start, instead of being dropped in silence."""
        if self.notify_mail and self.smtp is None:
            raise ValueError("notify_mail: needs a mail server in DEEDBOX_SMTP")
        if any(not 0 < part < 1 for part in self.notify_remind_at):
            raise ValueError("notify_remind_at: each is a part of the time, above 0 and below 1")
        for cause, owners in self.alerts_to.items():
            if cause != ANY and cause not in CAUSES:
                raise ValueError(f"alerts_to: {cause!r} is no cause; there are {ANY}, {', '.join(CAUSES)}")
            if not owners:
                raise ValueError(f"alerts_to: {cause} names nobody")
            for owner in owners:
                self._owner(owner)

    def _owner(self, owner: str) -> None:
        name, colon, target = owner.partition(":")
        if colon:
            if not name or not target:
                raise ValueError(f"alerts_to: {owner!r} is not of the form connector:target")
            return
        try:
            check_mail_address(owner)
        except ValueError as error:
            raise ValueError(f"alerts_to: {owner!r} is neither a mail address nor connector:target") from error
        if self.smtp is None:
            raise ValueError(f"alerts_to: {owner} needs a mail server in DEEDBOX_SMTP")

    @property
    def endpoints(self) -> tuple[ModelConfig, ...]:
        """The model endpoints, that of DEEDBOX_MODEL_BASE_URL first where it is set."""
        if self.model_base_url is None or self.model_name is None:
            return self.models
        one = ModelConfig(
            name=DEFAULT,
            base_url=self.model_base_url,
            model=self.model_name,
            api_key=self.model_api_key,
            timeout_s=self.model_timeout_s,
            repairs=self.model_repairs,
        )
        return (one, *self.models)

    @property
    def bearer_issuers(self) -> tuple[BearerConfig, ...]:
        """The issuers of access tokens, each with the groups and roles of the provider of the same people."""
        return tuple(one.like(self.oidc, self.tenant) for one in self.bearer)

    @property
    def payload_log(self) -> PayloadLog | None:
        """How payloads are logged; None where they are not."""
        if not self.log_payloads:
            return None
        return PayloadLog(self.log_payloads_keep_days or 0.0, self.log_payloads_readers, self.log_payloads_masks)

    @property
    def lease(self) -> Lease:
        """The lease and what follows from it."""
        return Lease(self.lease_s, max(self.lease_s, 3600.0))

    @property
    def connectors(self) -> ConnectorSettings:
        """What the built-in connectors are bound to."""
        return ConnectorSettings(
            smtp=self.smtp, http=self.targets, slack=self.slack, telegram=self.telegram, callbacks=self.callbacks
        )

    @property
    def breaker(self) -> Breaker:
        """When a target is left alone."""
        return Breaker(self.breaker_failures, self.breaker_window_s, self.breaker_open_s, max(1800.0, self.breaker_open_s))

    @property
    def look_ups(self) -> LookUps:
        """When unknown effects are looked up."""
        return LookUps(self.look_up_first_s, max(86400.0, self.look_up_first_s), self.look_up_tries)

    def fingerprint(self) -> bytes:
        """A hash that differs between processes with different settings; secrets do not enter it."""
        return hashlib.sha256(self.model_dump_json().encode()).digest()

"""The registered receivers of callbacks: nobody can name a URL in a call."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from deedbox.connectors.signing import SigningSecrets
from deedbox.egress import EgressRefused, check_url

FINAL = ("job.completed", "job.failed", "job.canceled")
CALLBACK_EVENTS = frozenset(
    {
        *FINAL,
        "job.queued",
        "job.started",
        "job.retrying",
        "job.awaiting_human",
        "job.decided",
        "job.commented",
        "job.snoozed",
        "job.dispatching",
        "effect.sending",
        "effect.completed",
        "effect.unknown",
        "effect.failed",
        "effect.canceled",
    }
)
"""What may be told by callback; progress and partial results are for those who listen to the stream."""


class CallbackConfig(BaseModel):
    """One registered receiver of callbacks, and what it is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    url: str
    secrets: SigningSecrets = Field(min_length=1, description="Secrets (whsec_…) to sign with; two while they change.")
    events: frozenset[str] = Field(
        default=frozenset({*FINAL, "job.awaiting_human"}), min_length=1, description="Types of events that it is told."
    )

    @field_validator("url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        try:
            url = check_url(value)
        except EgressRefused as error:
            raise ValueError(error.message) from error
        if url.fragment:
            raise ValueError("url: must not have a fragment")
        return value

    @field_validator("events")
    @classmethod
    def _known(cls, value: frozenset[str]) -> frozenset[str]:
        unknown = sorted(value - CALLBACK_EVENTS)
        if unknown:
            raise ValueError(f"events: {', '.join(unknown)} cannot be told; there are {', '.join(sorted(CALLBACK_EVENTS))}")
        return value

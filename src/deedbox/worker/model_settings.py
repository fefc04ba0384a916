"""What settings say of a model endpoint. No model library is loaded for it: whoever only asks does not wait for one."""

import re
from decimal import Decimal
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

DEFAULT = "default"
"""The endpoint that is asked where none is named: the one of DEEDBOX_MODEL_BASE_URL, or the first of DEEDBOX_MODELS."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


class ModelConfig(BaseModel):
    """One named endpoint that speaks chat completions: a provider, a local server, or an agent's own API server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="What `ctx.model(endpoint=…)` and `ctx.agent(endpoint=…)` call it.")
    base_url: str = Field(description="Up to `/v1`, for example http://127.0.0.1:8642/v1.")
    model: str = Field(description="Model to ask for.")
    api_key: SecretStr | None = Field(default=None, description="Bearer key; none for a local server that needs none.")
    timeout_s: float = Field(default=60.0, gt=0, le=3600, description="Longest time of one request, in seconds.")
    least_timeout_s: float = Field(default=5.0, gt=0, le=3600, description="What a measured time-out never goes below.")
    repairs: int = Field(default=1, ge=0, le=3, description="Repairs of an invalid answer within one call.")
    max_output_tokens: int | None = Field(default=None, ge=1, description="Sent with each request; unset: the server's own.")
    at_once: int | None = Field(
        default=None, ge=1, le=1000, description="Requests at once from one process; unset: any number."
    )
    input_price: Decimal | None = Field(default=None, ge=0, description="Price of a million input tokens.")
    output_price: Decimal | None = Field(default=None, ge=0, description="Price of a million output tokens.")
    fallback: tuple[str, ...] = Field(
        default=(), description="Endpoints to ask instead, in this order, while this one is away, busy or broken."
    )
    send_key: bool = Field(
        default=False, description="Send `Idempotency-Key`, the same in every attempt: for a server that is an agent itself."
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not _NAME.fullmatch(self.name):
            raise ValueError("name: is a lower-case letter and up to 39 letters, digits, - or _")
        if (self.input_price is None) != (self.output_price is None):
            raise ValueError("input_price and output_price: set both or neither")
        if self.name in self.fallback or len(set(self.fallback)) != len(self.fallback):
            raise ValueError("fallback: names other endpoints, each once")
        return self


def check_endpoints(endpoints: tuple[ModelConfig, ...]) -> None:
    """Raise ValueError for two endpoints of one name, or a fallback that is none of them."""
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError("models: two endpoints have one name")
    for endpoint in endpoints:
        for other in endpoint.fallback:
            if other not in names:
                raise ValueError(f"models: {endpoint.name} falls back on {other!r}, which is no endpoint")

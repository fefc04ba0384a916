"""A worker that asks a model, for tests: the endpoint stands in for a provider, everything else is the real thing."""

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from pydantic import SecretStr

from deedbox.model.lease import Lease
from deedbox.sweep.service import Sweep
from deedbox.worker.endpoint import EndpointClient
from deedbox.worker.loop import Worker, WorkerSettings
from deedbox.worker.model_call import ModelClient, ModelEndpoint
from tests.road import Poll, Road

NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS here; reading the system's certificates would take longest
KEY = "sk-test-aYk3"


def plain() -> httpx2.AsyncClient:
    """An HTTP client that takes nothing from the environment."""
    return httpx2.AsyncClient(trust_env=False, verify=NO_TRUST)


def endpoint(base_url: str, **changes: Any) -> ModelEndpoint:
    """An endpoint with a key, unless the test says otherwise."""
    settings: dict[str, Any] = {"api_key": SecretStr(KEY), "model": "configured", "timeout_s": 10.0, **changes}
    return ModelEndpoint(base_url, **settings)


@asynccontextmanager
async def asking(
    first: ModelEndpoint, *further: ModelEndpoint, fallback: Mapping[str, Sequence[str]] | None = None
) -> AsyncGenerator[ModelClient]:
    """A client for these endpoints."""
    client = ModelClient(first, plain(), *(EndpointClient(one, plain()) for one in further), fallback=fallback)
    try:
        yield client
    finally:
        await client.aclose()


def start(one: Road, client: ModelClient, *, slots: int = 4, calls: Any = None, lease_s: float = 5.0) -> None:
    """Start a worker that asks it, and the sweep that rescues."""
    one.start(
        Worker(
            url=one.database.url,
            pool=one.pool,
            ids=one.ids,
            app=one.app,
            lease=Lease(lease_s),
            settings=WorkerSettings(name="w", build="test", slots=slots, poll_s=0.05),
            wake=Poll(),
            models=client,
            calls=calls,
        )
    )
    one.start(Sweep(one.pool, one.ids, Lease(lease_s)))

"""Deedbox's tools for any agent's toolkit, over HTTP: copy this file. It needs httpx and nothing of Deedbox's.

A call that is repeated within a run is the same job, however often the model, the toolkit or the network repeats it. A call
that takes longer is asked for again under its key until it is done or `patience_s` is over; the model is then told so.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Self

import httpx

LONGEST_WAIT_S = 20.0


@dataclass(frozen=True)
class Tool:
    """A tool that the key may call."""

    name: str
    description: str
    schema: dict[str, Any]


class DeedboxTools:
    """What one key may call, for one run of an agent."""

    def __init__(self, url: str, key: str, *, run: str, patience_s: float = 60.0) -> None:
        """`run` names the run: equal calls within it are one job. `patience_s` bounds how long one call is waited for."""
        headers = {"Authorization": f"Bearer {key}", "Deedbox-Caller-Run": run}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=LONGEST_WAIT_S + 10)
        self._run = run
        self._patience_s = patience_s

    async def __aenter__(self) -> Self:
        """Ready."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def tools(self) -> list[Tool]:
        """Those that the key may call, with the JSON Schema of their arguments. Raises httpx.HTTPError."""
        answer = (await self._http.get("/api/tools")).raise_for_status().json()
        return [Tool(one["name"], one["description"], one["input_schema"]) for one in answer["tools"]]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool: `{status, action, job_id, human_message, error_code, data, …}`, also where it failed or goes on.

        Raises httpx.HTTPError where Deedbox cannot be reached or does not know the key. Calling again is safe then.
        """
        until = monotonic() + self._patience_s
        said = json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(f"{self._run}\n{name}\n{said}".encode()).hexdigest()
        while True:
            wait_s = max(0.0, min(LONGEST_WAIT_S, until - monotonic()))
            answer = await self._http.post(
                f"/api/tools/{name}",
                params={"wait_s": f"{wait_s:.1f}"},
                content=said,
                headers={"Content-Type": "application/json", "Idempotency-Key": key},
            )
            envelope: dict[str, Any] = answer.raise_for_status().json()
            if envelope["status"] != "pending" or not envelope["retryable"] or monotonic() >= until:
                return envelope

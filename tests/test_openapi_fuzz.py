"""The API against its own description: whatever fits the document, or misses it, gets an answer that the document names."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as described

from tests.database import fresh_database
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, Api, api

EXAMPLES = int(os.environ.get("DEEDBOX_FUZZ", "8"))
"""Calls of each operation and kind: so many in every run, as many as wanted by hand."""
CHECKS: Any = [
    getattr(checks, "not_a_server_error"),  # noqa: B009 -- asked by name, as its type is not known
    *(
        getattr(described, f"{name}_conformance")
        for name in ("status_code", "content_type", "response_headers", "response_schema")
    ),
]


@dataclass
class Served:
    """A server in a thread of its own, and ids of things that are there."""

    one: Api
    document: dict[str, Any]
    known: dict[str, list[str]]


async def _fill(one: Api) -> dict[str, list[str]]:
    """Jobs in several states, with an approval that is open."""
    ids: list[str] = []
    async with one.client() as client:
        for number, action in enumerate(("note_thing", "send_note", "send_note")):
            answer = await client.post(f"/api/actions/{action}/jobs", json={}, headers={"Idempotency-Key": f"fuzz-{number}"})
            ids.append(answer.json()["job_id"])
        one.road.start(one.road.worker())
        await one.road.until(ids[1], "awaiting_human")  # pyright: ignore[reportArgumentType]
    approvals = [str(row[0]) for row in await one.database.rows("SELECT approval_id::text FROM deedbox.approval")]
    lanes = [str(row[0]) for row in await one.database.rows("SELECT lane_id::text FROM deedbox.lane")]
    return {"job_id": ids, "approval_id": approvals, "lane_id": lanes, "action": ["note_thing"]}


@contextlib.contextmanager
def served() -> Generator[Served]:
    """The API in a thread of its own."""
    came = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        async with fresh_database() as database, api(database) as one:
            async with one.client() as client:
                document = (await client.get("/api/openapi.json")).json()
            box["served"] = Served(one, document, await _fill(one))
            box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
            came.set()
            await box["stop"].wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
            box["error"] = error
        finally:
            came.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert came.wait(60)
    try:
        if "error" in box:
            raise box["error"]
        yield box["served"]
    finally:
        if "loop" in box:
            box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(60)


@pytest.fixture(scope="module")
def server() -> Generator[Served]:
    with served() as one:
        yield one


def _probe(server: Served, operation: Any, mode: GenerationMode) -> int:
    """Ask one operation as often as `EXAMPLES` says; returns how often it was asked. Raises what a check finds."""
    keys = {"program": server.one.key, "stranger": server.one.foreign_key, "person": PERSON_TOKEN, "nobody": None}
    asked = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(data=st.data())
    def probe(data: st.DataObject) -> None:
        nonlocal asked
        case: Any = data.draw(operation.as_strategy(generation_mode=mode))
        for name, ids in server.known.items():
            # Ids out of the air name nothing; half of the calls are about something that is there.
            if name in (case.path_parameters or {}) and data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(ids))
        # Twenty-five seconds each would be too long for what they show.
        query: dict[str, Any] = case.query or {}
        case.query = {name: value for name, value in query.items() if name != "wait"}
        who = data.draw(st.sampled_from(sorted(keys)))
        headers = {"Authorization": f"Bearer {keys[who]}"} if keys[who] else {}
        response = case.call(base_url=server.one.url, headers={**headers, "Accept": "application/json"}, timeout=60)
        asked += 1
        case.validate_response(response, checks=CHECKS)

    probe()
    return asked


@proves("G-OPENAPI")
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fits", "misses"])
def test_every_answer_is_one_the_document_names(server: Served, mode: GenerationMode) -> None:
    schema: Any = schemathesis.openapi.from_dict(server.document)
    broken: list[str] = []
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        try:
            asked += _probe(server, operation, mode)
        except Unsatisfiable:
            # There is no way to miss a description that allows everything.
            continue
        except Exception as error:  # noqa: BLE001 -- the next operation is asked all the same
            broken.append(f"{operation.method.upper()} {operation.path}: {error}")
    assert not broken, "\n\n".join(broken)
    assert asked > EXAMPLES

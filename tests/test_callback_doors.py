"""Callbacks at the doors: named at submit, asked for, told again and enabled over HTTP and at the terminal."""

import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from deedbox.dispatch.callbacks import Callbacks
from deedbox.store import callbacks as store
from deedbox.store.transaction import transaction
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.api import PERSON_TOKEN, Api, api, problem_of
from tests.servers.commands import PASSWORD, Cli, refused

pytestmark = pytest.mark.anyio

KEY = "Idempotency-Key"
CONNECTOR, SHOP = "callback", "shop"


async def told(one: Api, key: str = "k") -> UUID:
    """A job whose acceptance a receiver is to be told of, put on the outbox."""
    async with one.client() as client:
        headers = {KEY: key, "Deedbox-Callback": SHOP}
        made = await client.post("/api/actions/note_thing/jobs", json={}, headers=headers)
        assert made.status_code == 202, made.text
    assert await Callbacks(one.road.pool, one.road.ids, {SHOP: frozenset({"job.queued"})}).once() == 1
    return UUID(made.json()["job_id"])


async def gone(one: Api) -> None:
    async with transaction(one.road.pool) as connection:
        assert await store.disable(connection, tenant="default", connector=CONNECTOR, target=SHOP, reason="It answered 410.")


@proves("G-CALLBACK-GONE")
async def test_over_http(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client, one.client(PERSON_TOKEN) as person:
        job_id = await told(one)
        assert await database.value("SELECT callback FROM deedbox.job") == SHOP
        page = (await client.get("/api/callbacks", params={"since": "2020-01-01T00:00:00Z", "target": SHOP})).json()
        (line,) = page["callbacks"]
        assert (line["job_id"], line["type"], line["state"]) == (str(job_id), "job.queued", "pending")
        assert line["event"]["event_id"] == line["event_id"]
        assert page["cursor"] is None
        later = {"since": "2999-01-01T00:00:00Z"}
        assert (await client.get("/api/callbacks", params=later)).json()["callbacks"] == []
        async with one.client(one.foreign_key) as stranger:
            assert (await stranger.get("/api/callbacks")).json()["callbacks"] == []
            assert (await stranger.post("/api/callbacks/replay", json={"job_id": str(job_id)})).json()["replayed"] == 0
        again = await client.post("/api/callbacks/replay", json={"job_id": str(job_id)})
        assert (again.status_code, again.json()) == (202, {"replayed": 1, "cursor": None})
        lines = (await person.get("/api/callbacks", params={"job_id": str(job_id)})).json()["callbacks"]
        assert len({row["event_id"] for row in lines}) == 1
        assert len({row["effect_id"] for row in lines}) == 2
        await gone(one)
        (out,) = (await client.get("/api/callbacks/disabled")).json()["disabled"]
        assert (out["target"], out["reason"]) == (SHOP, "It answered 410.")
        where = f"/api/callbacks/{SHOP}/enable"
        assert problem_of(await client.post(where, json={"reason": "mine"}))[:2] == (403, "permission_denied")
        assert (await person.post(where, json={"reason": "They asked."})).json() == {"target": SHOP, "enabled": True}
        assert problem_of(await person.post(where, json={"reason": "They asked."}))[:2] == (404, "not_found")
        verbs = await database.rows("SELECT verb FROM deedbox.audit ORDER BY seq")
        assert [row[0] for row in verbs if "callbacks" in str(row[0])] == ["replay_callbacks"] * 2 + ["enable_callbacks"]


async def test_what_cannot_be_read_is_refused_over_http(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        for name, pointer in (("nobody", "/callback"), ("https://evil.example/", "/callback"), ("", "/Deedbox-Callback")):
            headers = {KEY: "k", "Deedbox-Callback": name}
            status, _, pointers = problem_of(await client.post("/api/actions/note_thing/jobs", json={}, headers=headers))
            assert (status, pointers) == (400, [pointer])
        assert (await one.stored())["job"] == 0
        for parameter, value in (
            ("since", "yesterday"),
            ("since", "2027-01-01T00:00:00"),
            ("job_id", "x"),
            ("cursor", "x"),
            ("limit", "0"),
        ):
            refusal = problem_of(await client.get("/api/callbacks", params={parameter: value}))
            assert refusal[0] == 400, (parameter, value)
        bad: list[dict[str, Any]] = [{}, {"since": "now"}, {"job_id": "x"}, {"since": 1}, {"typo": 1}]
        for body in bad:
            assert problem_of(await client.post("/api/callbacks/replay", json=body))[0] == 400, body
        async with one.client(None) as nobody:
            for path in ("/api/callbacks", "/api/callbacks/disabled"):
                assert (await nobody.get(path)).status_code == 401
            assert (await nobody.post("/api/callbacks/replay", json={})).status_code == 401


@proves("G-CALLBACK-GONE")
async def test_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    secret = "whsec_" + base64.b64encode(b"t" * 32).decode()
    shop = [{"name": SHOP, "url": "https://shop.example/hook", "secrets": [secret]}]
    cli = Cli(database.owner_url, tmp_path, {"DEEDBOX_CALLBACKS": json.dumps(shop)})
    async with api(database) as one:
        job_id = await told(one)
        await gone(one)
    said = {"stdin": f"{PASSWORD}\n"}
    for name, role in (("Ada", "manager"), ("Vera", "viewer")):
        assert (await cli("users", "add", name, "--role", role, **said)).code == 0
    (line,) = (await cli("callbacks", "list", "--json")).json()
    assert (line["target"], line["job_id"], line["type"]) == (SHOP, str(job_id), "job.queued")
    assert (await cli("callbacks", "list", "--since", "2999-01-01T00:00:00Z", "--json")).json() == []
    refused(await cli("callbacks", "list", "--since", "yesterday"), 2, "zone")
    refused(await cli("callbacks", "replay", "--as", "Ada", **said), 2, "--since")
    refused(await cli("callbacks", "replay", "--as", "Vera", "--job", str(job_id), **said), 1, "role that may retry")
    again = await cli("callbacks", "replay", "--as", "Ada", "--since", "2020-01-01T00:00:00+02:00", **said)
    assert again.out == "told again: 1\n"
    assert len((await cli("callbacks", "list", "--job", str(job_id), "--json")).json()) == 2
    doctor = await cli("doctor", "--json")
    found = [row for row in doctor.json() if row["what"] == f"callbacks to {SHOP}"]
    assert [(row["verdict"], "410" in row["said"]) for row in found] == [("missing", True)]
    assert secret not in doctor.out
    assert [row["target"] for row in (await cli("callbacks", "disabled", "--json")).json()] == [SHOP]
    why = ("--as", "Ada", "--reason", "They asked.")
    assert (await cli("callbacks", "enable", SHOP, *why, **said)).out == f"{SHOP} is told again\n"
    refused(await cli("callbacks", "enable", SHOP, *why, **said), 3, "no disabled receiver")
    assert (await cli("callbacks", "disabled")).out == "none is disabled\n"

"""Logging in at a provider as a browser does, step by step, and what a refusal must look like."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2

from tests.database import TestDatabase
from tests.servers.console import field_of
from tests.servers.installed import House, house
from tests.servers.openid_provider import CLIENT_ID, CLIENT_SECRET, HostileProvider

ROLES = {"desk": ["manager", "viewer"], "ops": ["operator"]}


async def seconds(database: TestDatabase) -> float:
    return float(str(await database.value("SELECT extract(epoch FROM deedbox.clock())::float8")))


def config(issuer: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": "corp",
        "title": "the company",
        "issuer": issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "roles": ROLES,
        **changed,
    }


@asynccontextmanager
async def served(database: TestDatabase, *configs: dict[str, Any], **settings: Any) -> AsyncGenerator[House]:
    hosts = frozenset({"127.0.0.1"})
    async with house(database, oidc=configs, egress_allow=hosts, **settings) as running:
        yield running


async def leave(client: httpx2.AsyncClient, name: str = "corp", *, next_: str = "/", fresh: bool = False) -> str:
    """Press the button: where the browser is sent."""
    page = await client.get("/login", params={"next": next_, **({"fresh": "1"} if fresh else {})})
    form = {"csrf": field_of(page.text, "csrf"), "next": field_of(page.text, "next"), **({"fresh": "1"} if fresh else {})}
    answer = await client.post(f"/login/{name}", data=form)
    assert answer.status_code == 200, answer.text
    return answer.headers["refresh"].removeprefix("0; url=")


async def back(client: httpx2.AsyncClient, params: Mapping[str, str], name: str = "corp") -> httpx2.Response:
    return await client.get(f"/login/{name}/callback?{urlencode(params)}", headers={"Sec-Fetch-Site": "cross-site"})


async def log_in(
    client: httpx2.AsyncClient, provider: HostileProvider, *, next_: str = "/", fresh: bool = False
) -> httpx2.Response:
    return await back(client, provider.authorize(await leave(client, next_=next_, fresh=fresh)))


async def roles_of(site: House, name: str) -> set[str]:
    rows = await site.database.rows(
        'SELECT g.role FROM deedbox."grant" g JOIN deedbox.principal p USING (principal_id) WHERE p.name = %s', name
    )
    return {str(row[0]) for row in rows}


async def refused(site: House, answer: httpx2.Response, why: str) -> None:
    """One page for every reason, no session, nobody made, no role given; the journal has the reason."""
    assert answer.status_code == 403, answer.text
    assert "You are not logged in" in answer.text
    assert "deedbox_session" not in answer.headers.get("set-cookie", "")
    assert await site.database.value("SELECT count(*) FROM deedbox.session") == 0
    assert await site.database.value("SELECT count(*) FROM deedbox.identity") == 0
    assert await site.database.value("SELECT count(*) FROM deedbox.principal") == 0
    (entry,) = await site.told("login_refused")
    assert (entry[1], entry[2], entry[3], entry[4]["why"]) == ("nobody", "page", "oidc", why)

"""Access tokens at `/mcp`: the official client gets one by itself, and what it may do there is what it was issued for."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import House
from tests.servers.issuing import EVERYTHING, real_issuer, taking, token_for
from tests.servers.logins import seconds
from tests.servers.mcp_house import ERAS, Era, Script
from tests.servers.mcp_house import desk as tools
from tests.servers.openid_provider import HostileProvider

pytestmark = pytest.mark.anyio
BACK = "http://127.0.0.1/back"


class Kept(TokenStorage):
    """What a client keeps of its authorization, in memory."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep them."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Who the client is there."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it."""
        self.client = client_info


@asynccontextmanager
async def official(site: House, era: Era, auth: Any = None, token: str | None = None) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, auth=auth, trust_env=False, timeout=60, follow_redirects=True) as http:
        transport = streamable_http_client(f"{site.url}/mcp", http_client=http)
        async with Client(transport, mode="legacy" if era == "legacy" else "auto", cache=None) as client:
            yield client


@proves("G-BEARER-METADATA", "G-BEARER")
@pytest.mark.parametrize("era", ERAS)
async def test_the_official_client_finds_the_issuer_and_comes_back_with_a_token(database: TestDatabase, era: Era):
    """From nothing but the URL: 401, our description, the issuer's, registration, code with PKCE, the resource, the call."""
    user = {"sub": "u-17", "preferred_username": "grace", "groups": ["ops"]}
    kept, came = Kept(), dict[str, str]()
    with real_issuer(user) as issuer:
        async with taking(database, issuer, tools(Script())) as site:

            async def say_yes(url: str) -> None:
                came["asked"] = url
                async with httpx2.AsyncClient(trust_env=False, timeout=30) as browser:
                    answer = await browser.post(url, data={"sub": "u-17"})
                    assert answer.status_code == 302, answer.text
                    came["back"] = answer.headers["location"]

            async def come_back() -> AuthorizationCodeResult:
                found = {name: values[0] for name, values in parse_qs(urlsplit(came["back"]).query).items()}
                return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

            wanted = OAuthClientMetadata(redirect_uris=[AnyUrl(BACK)], client_name="a test")
            auth = OAuthClientProvider(f"{site.url}/mcp", wanted, kept, say_yes, come_back)
            async with official(site, era, auth) as client:
                listed = [one.name for one in (await client.list_tools()).tools]
                done: Any = (await client.call_tool("note_thing", {"text": "x"})).structured_content
            assert "note_thing" in listed
            assert done["job_id"], done
            asked = {name: values[0] for name, values in parse_qs(urlsplit(came["asked"]).query).items()}
            assert asked["resource"] == f"{site.url}/mcp"
            # It asked for what the challenge names, and no more.
            assert {"deedbox:submit", "deedbox:read", "deedbox:cancel"} <= set(asked["scope"].split())
            assert "deedbox:administer" not in asked["scope"]
            names = "SELECT p.name FROM deedbox.job j JOIN deedbox.principal p ON p.principal_id = j.subject"
            assert await database.value(names) == "grace"
            # For this face alone.
            assert kept.tokens is not None
            async with site.api(kept.tokens.access_token) as api:
                assert (await api.get("/api/me")).status_code == 401


@proves("G-BEARER-SCOPE")
@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_those_that_the_token_was_issued_for(database: TestDatabase, era: Era):
    with HostileProvider(await seconds(database), groups=["ops", "desk"]) as provider:
        async with taking(database, provider, tools(Script())) as site:
            for scope, shown in (
                (EVERYTHING, {"note_thing", "read_books", "get_job", "cancel_job", "decide_approval"}),
                ("deedbox:submit", {"note_thing", "read_books", "get_job"}),
                ("deedbox:read", {"read_books", "get_job"}),
                ("deedbox:cancel", {"cancel_job"}),
            ):
                token = token_for(provider, site, scope=scope)
                async with official(site, era, token=token) as client:
                    listed = {one.name for one in (await client.list_tools()).tools}
                    assert listed & {"note_thing", "read_books", "get_job", "cancel_job", "decide_approval"} == shown
                    if scope == "deedbox:read":
                        refused: Any = (await client.call_tool("note_thing", {"text": "x"})).structured_content
                        assert refused["error_code"] in {"PERMISSION_DENIED", "NOT_FOUND"}
            assert await database.value("SELECT count(*) FROM deedbox.job") == 0


@proves("G-BEARER-SCOPE", "G-BEARER-METADATA")
async def test_a_token_for_nothing_here_is_told_what_it_lacks(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["ops"]) as provider:
        async with taking(database, provider, tools(Script())) as site:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            for token, status, error in (
                (None, 401, None),
                (token_for(provider, site, aud=f"{site.url}/api"), 401, "invalid_token"),
                (token_for(provider, site, scope="openid"), 403, "insufficient_scope"),
                (token_for(provider, site, scope="deedbox:reconcile"), 403, "insufficient_scope"),
            ):
                async with site.api(token) as client:
                    answer = await client.post("/mcp", json=body, headers={"Accept": "application/json, text/event-stream"})
                told = answer.headers["www-authenticate"]
                assert answer.status_code == status, answer.text
                assert (f'error="{error}"' in told) == (error is not None)
                assert f'resource_metadata="{site.url}/.well-known/oauth-protected-resource/mcp"' in told
                assert 'scope="deedbox:submit deedbox:read deedbox:cancel"' in told

"""Access tokens: what is believed of them at the HTTP API, what is refused, and what nobody is ever handed."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.registry import HeaderParameter
from pydantic import BaseModel

from deedbox import wiring
from deedbox.connectors import Http
from deedbox.extend.context import Context
from deedbox.extend.registry import App
from deedbox.gate.rules import require_person
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import VERBS, Verb
from deedbox.model.permissions import ROUTES
from deedbox.model.policy import allow, hold
from deedbox.store import switch
from deedbox.store.transaction import transaction
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.servers.installed import House
from tests.servers.issuing import (
    EVERYTHING,
    authorized,
    claims_for,
    real_issuer,
    taking,
    token_for,
)
from tests.servers.logins import seconds
from tests.servers.openid_provider import HostileProvider, signed_with_the_public_key, unsigned

pytestmark = pytest.mark.anyio
JOBS = "/api/actions/note_thing/jobs"


class Note(BaseModel):
    text: str = ""


def desk() -> App:
    app = App(connectors=[Http()])

    @app.action(roles=["operator", "viewer"], policy=allow(), key="new")
    async def note_thing(_ctx: Context, note: Note) -> Note:
        """Note a thing."""
        return note

    @app.action(roles=["operator"], approvers=["manager"], policy=hold(expires="2h"))
    async def post_note(ctx: Context, note: Note) -> Note:
        """Post a note."""
        ctx.effect("http", target="notes", slot="note", payload={"path": "/", "body": {"text": note.text}})
        return note

    return app


async def me(site: House, token: str) -> httpx2.Response:
    async with site.api(token) as client:
        return await client.get("/api/me")


@proves("G-BEARER")
async def test_a_token_makes_its_person_with_the_roles_of_the_groups_and_no_more_than_its_scope(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk", "nobody knows this one"]) as provider:
        async with taking(database, provider, desk()) as site:
            token = token_for(provider, site, scope="deedbox:read deedbox:submit foreign:scope")
            answer = await me(site, token)
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert (found["name"], found["kind"], found["method"]) == ("ada", "person", "access_token")
            assert found["roles"] == ["manager", "viewer"]
            assert found["verbs"] == ["submit", "read"]
            (entry,) = await site.told("take_token")
            assert entry[1:4] == ("ada", "api", "access_token")
            assert entry[4]["roles_given"] == ["manager", "viewer"]
            async with site.api(token) as client:
                job = await client.post(JOBS, json={"text": "x"})
                assert job.status_code == 202, job.text
                assert (await client.get(f"/api/jobs/{job.json()['job_id']}")).status_code == 200
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 1
            # The same token again writes nothing.
            assert len(await site.told("take_token")) == 1


def _unpublished(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims, key=provider.foreign, kid="two")


def _foreign(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims, key=provider.foreign)


def _cut(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return provider.signed(claims)[:-4] + "AAAA"


def _of_half_a_character(provider: HostileProvider, claims: dict[str, Any]) -> str:
    return jws.serialize_compact({"alg": "RS256", "kid": "one"}, json.dumps({**claims, "sub": "\ud800"}), provider.key)


def _with_header(**more: Any) -> Callable[[HostileProvider, dict[str, Any]], str]:
    def made(provider: HostileProvider, claims: dict[str, Any]) -> str:
        header = {"alg": "RS256", "kid": "one", **more}
        known = JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
        known.header_registry = {**known.header_registry, "exp": HeaderParameter("Expiry", "int")}
        return jws.serialize_compact(header, json.dumps(claims), provider.key, registry=known)

    return made


def _brings_its_key(provider: HostileProvider, claims: dict[str, Any]) -> str:
    own = RSAKey.generate_key(2048)
    header = {"alg": "RS256", "jwk": own.as_dict(private=False), "jku": f"{provider.issuer}/jwks"}
    return jwt.encode(header, claims, own)


MISDEEDS: dict[str, Any] = {
    "for somebody else": {"aud": "https://elsewhere.example"},
    "for a longer name": {"aud": "{url}.evil.example"},
    "for another face": {"aud": "{url}/mcp"},
    "for nobody": {"aud": None},
    "for a number": {"aud": 7},
    "from another issuer": {"iss": "https://elsewhere.example"},
    "from nobody": {"iss": None},
    "of nobody": {"sub": None},
    "of an empty subject": {"sub": " "},
    "of a subject that is a number": {"sub": 7},
    "of half a character": _of_half_a_character,
    "over": {"exp": 1},
    "without an end": {"exp": None},
    "with an end that is a text": {"exp": "9999999999"},
    "with an end that is not a number": {"exp": float("nan")},
    "without an end at all": {"exp": float("inf")},
    "from the future": {"iat": 99_999_999_999},
    "issued at no time": {"iat": None},
    "not yet": {"nbf": 99_999_999_999},
    "not before something": {"nbf": "now"},
    "an ID token": {"at_hash": "AAAA"},
    "a refresh token": {"typ": "Refresh"},
    "bound to a key whose proof nobody sees": {"cnf": {"jkt": "AAAA"}},
    "for a person by an actor nobody knows": {"act": {"sub": "somebody"}},
    "by an actor without a name": {"act": {}},
    "unsigned": unsigned,
    "signed with the public key as a secret": signed_with_the_public_key,
    "signed by a foreign key under a known name": _foreign,
    "signed by a key that is not published": _unpublished,
    "with a broken signature": _cut,
    "with a key of its own": _brings_its_key,
    "signed with an algorithm that is not set": _with_header(alg="RS512"),
    "of another kind": _with_header(typ="logout+jwt"),
    "with a part that must be understood": _with_header(crit=["exp"], exp=1),
}


@proves("G-BEARER")
@pytest.mark.parametrize("misdeed", MISDEEDS)
async def test_what_is_wrong_with_a_token_is_told_to_nobody_and_changes_nothing(database: TestDatabase, misdeed: str):
    spoil: Any = MISDEEDS[misdeed]
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider, desk()) as site:
            if isinstance(spoil, dict):
                filled = {
                    name: site.url.join(value.split("{url}")) if name == "aud" and isinstance(value, str) else value
                    for name, value in cast("dict[str, Any]", spoil).items()
                }
                token = token_for(provider, site, **filled)
            else:
                token = str(spoil(provider, claims_for(provider, site)))
            answer = await me(site, token)
            assert answer.status_code == 401, answer.text
            assert answer.json()["detail"] == "The key is unknown, expired or revoked."
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
            assert await database.value("SELECT count(*) FROM deedbox.principal") == 0
            assert await site.told("take_token") == []


@proves("G-BEARER")
async def test_tokens_are_for_the_server_or_for_the_face_and_settings_may_name_what_else(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            for audience in (site.url, f"{site.url}/", f"{site.url}/api", ["https://elsewhere.example", site.url]):
                assert (await me(site, token_for(provider, site, aud=audience))).status_code == 200, audience
            bearer = site.installation.bearer
            assert bearer is not None
            assert await bearer.resolve(token_for(provider, site, aud=f"{site.url}/mcp"), "mcp") is not None
            assert await bearer.resolve(token_for(provider, site, aud=f"{site.url}/api"), "mcp") is None
        async with taking(database, provider, audience=["api://deedbox"]) as site:
            assert (await me(site, token_for(provider, site, aud="api://deedbox"))).status_code == 200
            assert (await me(site, token_for(provider, site, aud=site.url))).status_code == 401


async def test_a_token_is_good_to_its_end_and_no_longer_than_a_minute_beyond(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider) as site:
            token = token_for(provider, site)
            assert (await me(site, token)).status_code == 200
            site.installation.keys.forget()
            await database.shift_clock(355)
            assert (await me(site, token)).status_code == 200
            site.installation.keys.forget()
            await database.shift_clock(365)
            assert (await me(site, token)).status_code == 401


@proves("G-BEARER-SCOPE")
async def test_every_route_asks_for_the_scope_of_its_verb_and_says_which(database: TestDatabase):
    """With every role and every other scope, a route is refused for the scope it lacks, and says what to come with."""
    with HostileProvider(await seconds(database), groups=["all"]) as provider:
        async with taking(database, provider, desk(), roles={"all": ["admin", "manager", "operator", "viewer"]}) as site:
            asked = 0
            for (method, path), needed in ROUTES.items():
                if not path.startswith("/api/") or needed.who in {"open", "session"} or not needed.scopes:
                    continue
                others = " ".join(f"deedbox:{verb}" for verb in VERBS if verb not in needed.scopes)
                async with site.api(token_for(provider, site, scope=others)) as client:
                    at = path.replace("{action}", "note_thing").replace("{lane_id}", "1").replace("{verb}", "cancel")
                    while "{" in at:
                        at = at[: at.index("{")] + "0197f2a8-0000-7000-8000-0000000000ff" + at[at.index("}") + 1 :]
                    answer = await client.request(method, at, json={} if method in {"POST", "PUT"} else None)
                    assert answer.status_code == 403, (method, path, answer.text)
                    assert answer.json()["code"] == "insufficient_scope", (method, path)
                    told = answer.headers["www-authenticate"]
                    assert 'error="insufficient_scope"' in told
                    scopes = told.partition('scope="')[2].partition('"')[0].split()
                    assert set(scopes) == {f"deedbox:{verb}" for verb in needed.scopes}
                    asked += 1
            assert asked > 30
            unscoped = [one for one, needed in ROUTES.items() if not needed.scopes and needed.who not in {"open", "session"}]
            assert unscoped == [("GET", "/api/me"), ("DELETE", "/mcp")], "a route that any token opens"


@proves("G-BEARER-SCOPE")
@pytest.mark.parametrize("claim", [{"scope": None, "scp": ["deedbox:read"]}, {"scope": None, "scp": "deedbox:read"}])
async def test_scopes_are_read_where_issuers_write_them(database: TestDatabase, claim: dict[str, Any]):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider) as site:
            assert (await me(site, token_for(provider, site, **claim))).json()["verbs"] == ["read"]


async def test_a_token_without_a_scope_of_ours_may_do_what_settings_say_and_else_nothing(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider) as site:
            for scope in (None, "", "openid profile", ["deedbox:read", 7]):
                verbs: list[Verb] = ["read"] if isinstance(scope, list) else []
                assert (await me(site, token_for(provider, site, scope=scope))).json()["verbs"] == verbs
        async with taking(database, provider, unscoped=["read"], scopes={"work": ["submit", "cancel"]}) as site:
            assert (await me(site, token_for(provider, site, scope=None))).json()["verbs"] == ["read"]
            assert (await me(site, token_for(provider, site, scope="work"))).json()["verbs"] == ["submit", "cancel"]
            answer = await me(site, "ey.e.y")
            assert answer.status_code == 401


@proves("G-BEARER-METADATA")
async def test_a_client_learns_where_tokens_are_issued_for_this_server_and_with_what_scopes(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        async with taking(database, provider, desk()) as site, site.api() as client:
            refused = await client.get("/api/jobs")
            assert refused.status_code == 401
            told = refused.headers["www-authenticate"]
            assert told.startswith('Bearer realm="deedbox"')
            assert 'scope="deedbox:read"' in told
            assert "error=" not in told
            where = told.partition('resource_metadata="')[2].partition('"')[0]
            assert where == f"{site.url}/.well-known/oauth-protected-resource/api"
            found = await client.get(where)
            assert found.json() == {
                "resource": f"{site.url}/api",
                "authorization_servers": [provider.issuer],
                "scopes_supported": EVERYTHING.split(),
                "bearer_methods_supported": ["header"],
                "resource_name": "Deedbox",
            }
            # It is made from the public URL, whatever the caller calls us.
            lied = await client.get("/.well-known/oauth-protected-resource/mcp", headers={"Host": "evil.example"})
            assert lied.json()["resource"] == f"{site.url}/mcp"
            assert (await client.get("/.well-known/oauth-protected-resource")).json()["resource"] == site.url
            assert provider.asked == []


@proves("G-BEARER-DECIDES")
async def test_a_persons_token_decides_only_where_it_was_issued_for_that(database: TestDatabase):
    with HostileProvider(await seconds(database), groups=["desk"]) as provider:
        async with taking(database, provider, desk()) as site:
            bearer = site.installation.bearer
            assert bearer is not None
            lacking = EVERYTHING.replace("deedbox:decide ", "")
            person = await bearer.resolve(token_for(provider, site, scope=lacking), "mcp")
            assert person is not None
            # At whatever door: the function itself asks.
            with pytest.raises(DeedboxError) as refused:
                require_person(person)
            assert refused.value.code == "insufficient_scope"
            whole = await bearer.resolve(token_for(provider, site), "mcp")
            assert whole is not None
            require_person(whole)
            # No session: neither keys nor sessions are made or ended with it.
            async with site.api(token_for(provider, site)) as client:
                assert (await client.post("/api/keys", json={})).status_code == 403
                assert (await client.get("/api/sessions")).status_code == 403


@asynccontextmanager
async def upstream(heard: bytearray) -> AsyncGenerator[str]:
    """Somebody we write to, who keeps every byte."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{"id":"7"}')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def nowhere(site: House, signature: str, heard: bytearray) -> None:
    assert signature.encode() not in heard
    for (table,) in await site.database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'deedbox'"):
        rows = await site.database.rows(f"SELECT t::text FROM deedbox.{table} t")  # noqa: S608 -- our own tables
        assert not [row for row in rows if signature in str(row)], table


@proves("G-BEARER-KEPT-BACK", "G-BEARER-DECIDES")
async def test_a_token_is_kept_nowhere_and_handed_to_nobody(database: TestDatabase, capsys: pytest.CaptureFixture[str]):
    heard, stopping = bytearray(), asyncio.Event()
    with HostileProvider(await seconds(database), groups=["ops", "desk"]) as provider:
        async with upstream(heard) as url:
            settings: Any = {"targets": ({"name": "notes", "base_url": url},), "AI_ACTIONS_ENABLED": True}
            async with taking(database, provider, desk(), settings=settings) as site:
                async with transaction(site.installation.pool) as connection:
                    await switch.turn_root(connection, "acts", is_on=True, changed_by="test", reason="a test")
                running = asyncio.create_task(wiring.run_roles(site.installation, ("worker", "dispatch"), stopping))
                tokens = [token_for(provider, site, sub=subject, preferred_username=subject) for subject in ("asks", "decides")]
                async with site.api(tokens[0]) as client, site.api(tokens[1]) as other:
                    job = await client.post("/api/actions/post_note/jobs", json={"text": "x"}, headers={"Idempotency-Key": "k"})
                    assert job.status_code == 202, job.text
                    events = await client.get(
                        f"{job.json()['events_url']}?wait=20&after=2", headers={"Accept": "application/json"}
                    )
                    assert events.status_code == 200, events.text
                    (one,) = (await other.get("/api/approvals")).json()["approvals"]
                    shown = (await other.get(f"/api/approvals/{one['approval_id']}")).json()
                    decision = {"decision": "approve", "digest": shown["digest"]}
                    done = await other.post(f"/api/approvals/{one['approval_id']}/decision", json=decision)
                    assert done.status_code == 200, done.text
                    ended = await client.get(f"/api/jobs/{job.json()['job_id']}?wait=20")
                    assert ended.json()["state"] == "completed", ended.text
                stopping.set()
                await running
                assert heard
                for signature in (token.rpartition(".")[2] for token in tokens):
                    await nowhere(site, signature, heard)
                said = capsys.readouterr()
                assert not [token for token in tokens if token.rpartition(".")[2] in said.out + said.err + job.text + done.text]


@proves("G-BEARER")
async def test_a_real_provider_issues_a_token_by_code_and_pkce_that_is_taken(database: TestDatabase):
    user = {"sub": "u-17", "preferred_username": "grace", "groups": ["desk"]}
    with real_issuer(user) as issuer:
        async with taking(database, issuer, desk()) as site:
            token = await authorized(issuer, "u-17", scope="openid deedbox:read", resource=f"{site.url}/api")
            found = (await me(site, token)).json()
            assert (found["name"], found["roles"], found["verbs"]) == ("grace", ["manager", "viewer"], ["read"])
            for_another = await authorized(issuer, "u-17", scope="openid deedbox:read", resource="https://elsewhere.example")
            assert (await me(site, for_another)).status_code == 401
            head = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
            assert head["typ"] == "at+jwt"


async def test_a_curve_is_as_good_as_a_modulus(database: TestDatabase):
    with HostileProvider(await seconds(database)) as provider:
        curve = ECKey.generate_key("P-256", {"kid": "curve", "use": "sig", "alg": "ES256"})
        provider.keys = [dict(curve.as_dict(private=False)), {"kty": "new", "kid": "x"}, {"kty": "RSA", "n": "??", "kid": "y"}]
        async with taking(database, provider) as site:
            claims = claims_for(provider, site)
            assert (await me(site, jwt.encode({"alg": "ES256", "kid": "curve"}, claims, curve))).status_code == 200
            # One key without a name in the token: those that could have signed it are tried.
            assert (await me(site, jwt.encode({"alg": "ES256"}, claims, curve))).status_code == 200
            assert (await me(site, token_for(provider, site))).status_code == 401

"""Issuers of access tokens on loopback: one whose tokens a test spoils, and a real provider that issues RFC 9068 tokens."""

import base64
import hashlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from deedbox.extend.registry import App
from deedbox.model.identity import VERBS
from tests.database import TestDatabase
from tests.servers.installed import House, house
from tests.servers.openid_provider import HostileProvider, provider_process

ROLES = {"desk": ["manager", "viewer"], "ops": ["operator"]}
EVERYTHING = " ".join(f"deedbox:{verb}" for verb in VERBS)

_REAL = """
import json, sys, time
import flask
from authlib import jose
from oidc_provider_mock import _app, _storage
from werkzeug.serving import make_server

given = json.loads(sys.argv[1])
_storage.Client.SCOPES_SUPPORTED = (*_storage.Client.SCOPES_SUPPORTED, *given["scopes"])


def access_token(client, grant_type, user, scope):
    # RFC 8707: what the client says it wants the token for; RFC 9068: how it is written.
    resource = flask.request.form.get("resource") or client.get_client_id()
    now = int(time.time())
    claims = {
        "iss": flask.request.host_url.rstrip("/"), "sub": user.sub, "aud": resource, "client_id": client.get_client_id(),
        "iat": now, "exp": now + 3600, "jti": str(time.monotonic_ns()), "scope": scope, **user.claims,
    }
    key = flask.g.oidc_provider_mock_storage.jwk
    header = {"alg": "RS256", "typ": "at+jwt", "kid": key.as_dict(is_private=False)["kid"]}
    return jose.jwt.encode(header, claims, key.as_dict(is_private=True)).decode()


app = flask.Flask("provider")
app.config["OAUTH2_ACCESS_TOKEN_GENERATOR"] = access_token
users = [_storage.User(sub=one.pop("sub"), claims=one) for one in given["users"]]
_app.init_app(app, user_claims=users)
app.secret_key = "of a test"
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


def real_issuer(*users: Mapping[str, Any]) -> AbstractContextManager[str]:
    """oidc-provider-mock in a process of its own, issuing signed access tokens."""
    return provider_process(_REAL, {"users": users, "scopes": EVERYTHING.split()})


async def authorized(issuer: str, subject: str, *, scope: str, resource: str, back: str = "http://127.0.0.1/back") -> str:
    """The access token that a client gets by code and PKCE, for the person whom `subject` is at the issuer."""
    verifier = secrets.token_urlsafe(32)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": "an-agent",
        "redirect_uri": back,
        "scope": scope,
        "state": "s",
        "nonce": secrets.token_urlsafe(8),
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource,
    }
    async with httpx2.AsyncClient(base_url=issuer, trust_env=False, timeout=30) as client:
        found = (await client.get("/.well-known/openid-configuration")).json()
        answer = await client.post(found["authorization_endpoint"], params=asked, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        code = parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": verifier,
            "resource": resource,
            "client_id": "an-agent",
        }
        token = await client.post(found["token_endpoint"], data=form, auth=("an-agent", "any"))
        assert token.status_code == 200, token.text
        return str(token.json()["access_token"])


def issuer_config(issuer: str, **changed: Any) -> dict[str, Any]:
    """Settings that take this issuer's tokens."""
    return {"name": "corp", "issuer": issuer, "roles": ROLES, **changed}


@asynccontextmanager
async def taking(
    database: TestDatabase,
    provider: HostileProvider | str,
    app: App | None = None,
    *,
    oidc: Any = (),
    settings: Mapping[str, Any] | None = None,
    **changed: Any,
) -> AsyncGenerator[House]:
    """An installation that takes the tokens of this issuer, as `changed` has it."""
    issuer = provider if isinstance(provider, str) else provider.issuer
    chosen = {"bearer": (issuer_config(issuer, **changed),), "oidc": oidc, "egress_allow": frozenset({"127.0.0.1"})}
    async with house(database, app, **{**chosen, **(settings or {})}) as site:
        yield site


def claims_for(provider: HostileProvider, site: House, **more: Any) -> dict[str, Any]:
    """What a good token for this server says; None leaves a claim out."""
    claims = {
        "iss": provider.issuer,
        "sub": provider.subject,
        "aud": site.url,
        "iat": int(provider.now),
        "exp": int(provider.now) + 300,
        "client_id": "an-agent",
        "scope": EVERYTHING,
        "preferred_username": "ada",
        "groups": provider.groups,
        **more,
    }
    return {name: value for name, value in claims.items() if value is not None}


def token_for(provider: HostileProvider, site: House, **more: Any) -> str:
    """A good token for this server, but for what is said."""
    return provider.signed(claims_for(provider, site, **more))

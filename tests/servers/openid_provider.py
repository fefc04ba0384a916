"""OpenID providers on loopback: a real one in a process of its own, and one that does what a good provider never does.

The hostile one keeps to the protocol in everything but its misdeed, so that a test that sees a refusal has seen the reason.
"""

import base64
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID = "deedbox"
CLIENT_SECRET = "only for tests"[:4] + "-" + "x" * 8

_REAL = """
import json, sys
import oidc_provider_mock
from oidc_provider_mock._storage import User
from werkzeug.serving import make_server

users = [User(sub=one.pop("sub"), claims=one) for one in json.loads(sys.argv[1])]
server = make_server("127.0.0.1", 0, oidc_provider_mock.app(user_claims=users, require_nonce=True), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


def real_provider(*users: Mapping[str, Any]) -> AbstractContextManager[str]:
    """oidc-provider-mock in a process of its own, which knows these users; its issuer."""
    return provider_process(_REAL, users)


@contextmanager
def provider_process(program: str, given: Any) -> Generator[str]:
    """A Python program that is given JSON, says its port and serves; its issuer."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the provider did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


@dataclass
class _Code:
    nonce: str
    challenge: str
    redirect_uri: str


@dataclass
class HostileProvider:
    """A provider whose tokens, keys and descriptions a test spoils; unspoiled it is a good one.

    `now` is the time that it signs with, which a test takes from the database.
    """

    now: float
    subject: str = "a1"
    groups: Any = field(default_factory=list[str])
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    without: tuple[str, ...] = ()
    spoil_token: Callable[["HostileProvider", dict[str, Any]], str] | None = None
    spoil_metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    keys: list[dict[str, Any]] | None = None
    spoil_answer: dict[str, Any] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    described_at: str = "/.well-known/openid-configuration"

    def __post_init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.foreign = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self._codes: dict[str, _Code] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                path = urlsplit(self.path).path
                if path == provider.described_at:
                    self._send(200, provider.metadata)
                elif path == "/jwks":
                    self._send(200, {"keys": provider.public_keys})
                else:
                    self._send(404, {})

            def do_POST(self) -> None:
                provider.asked.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                self._send(*provider.exchange(dict(parse_qsl(body)), self.headers.get("Authorization", "")))

            def _send(self, status: int, body: Any) -> None:
                sent = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the library's name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def issuer(self) -> str:
        """Where it is, and what it calls itself."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def metadata(self) -> dict[str, Any]:
        """What it says of itself."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            **self.spoil_metadata,
        }

    @property
    def public_keys(self) -> list[dict[str, Any]]:
        """The keys that it publishes."""
        return [dict(self.key.as_dict(private=False))] if self.keys is None else self.keys

    def authorize(self, url: str) -> dict[str, str]:
        """Log its person in at once: what the browser is sent back with."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query, strict_parsing=True).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = _Code(asked["nonce"], asked["code_challenge"], asked["redirect_uri"])
        return {"code": code, "state": asked["state"]}

    def exchange(self, form: Mapping[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """A code for a token, once, to the client that asked for it and holds the verifier."""
        code = self._codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        basic = "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        good = (
            code is not None
            and base64.urlsafe_b64encode(verifier).rstrip(b"=").decode() == code.challenge
            and form.get("redirect_uri") == code.redirect_uri
            and form.get("grant_type") == "authorization_code"
            and authorization == basic
        )
        if code is None or not good:
            return 400, {"error": "invalid_grant"}
        access_token = secrets.token_urlsafe(16)
        half = hashlib.sha256(access_token.encode()).digest()[:16]
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": CLIENT_ID,
            "iat": int(self.now),
            "exp": int(self.now) + 300,
            "auth_time": int(self.now),
            "nonce": code.nonce,
            "at_hash": base64.urlsafe_b64encode(half).rstrip(b"=").decode(),
            "preferred_username": "ada",
            "email": "ada@example.org",
            "groups": self.groups,
            **self.more,
        }
        for name in self.without:
            del claims[name]
        token = self.signed(claims) if self.spoil_token is None else self.spoil_token(self, claims)
        return 200, {"access_token": access_token, "token_type": "Bearer", "id_token": token, **self.spoil_answer}

    def signed(self, claims: dict[str, Any], *, key: RSAKey | None = None, kid: str = "one") -> str:
        """A token signed as it should be, or by another key."""
        return jwt.encode({"alg": "RS256", "kid": kid}, claims, key or self.key)


def unsigned(_provider: HostileProvider, claims: dict[str, Any]) -> str:
    """A token with `alg: none` and no signature."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


def signed_with_the_public_key(provider: HostileProvider, claims: dict[str, Any]) -> str:
    """A token signed by HMAC whose secret is the text of the public key, which everybody has."""
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{_part(claims)}"
    mac = hmac.new(provider.key.as_pem(private=False), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

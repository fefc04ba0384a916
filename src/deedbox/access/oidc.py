"""What is asked of an OpenID provider, and what of its answers is believed.

authlib and joserfc know the protocol; every request leaves through the guarded client. A token counts only when a key of the
provider's own set signed it with a public-key algorithm that settings allow, for us, for this login, and now.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast
from urllib.parse import urlencode

from authlib.oauth2 import auth, rfc7636
from authlib.oauth2.rfc6749 import parameters
from authlib.oidc import core
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from deedbox.access.provider_settings import ProviderConfig, is_safe
from deedbox.egress import EgressClient, EgressRefused, MaybeSent, NotSent, check_url

# authlib says nothing of its types.
_auth: Any = auth
_core: Any = core
_parameters: Any = parameters
_pkce: Any = rfc7636

DEADLINE_S = 10.0
CAP = 256 * 1024
KEEP_S = 3600.0
AGAIN_S = 10.0
LEEWAY_S = 60
_LONGEST_SUBJECT = 255
_LONGEST_TOKEN = 64 * 1024
_OK = 200
_PUBLIC = frozenset({"RSA", "EC"})


class ProviderRefusedError(Exception):
    """A login that is not believed. `why` is a word for the journal, never shown to the browser."""

    def __init__(self, why: str) -> None:
        """`why` names the check that failed."""
        super().__init__(why)
        self.why = why


class ProviderAwayError(Exception):
    """The provider did not answer, or with nothing that can be used."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Where the provider's doors are, and whether it names itself when it sends people back (RFC 9207).

    `end_session_endpoint` is where people log out of it (OpenID Connect RP-Initiated Logout), None where it publishes none.
    """

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    names_itself: bool
    end_session_endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What a token that passed every check says: whom the provider means, in which groups, and when it saw the person."""

    subject: str
    name: str | None
    groups: frozenset[str]
    auth_time: float | None


class ProviderClient:
    """One provider. What it publishes is kept for an hour; a key nobody knows makes the set be read again, not too often."""

    def __init__(self, config: ProviderConfig, client: EgressClient) -> None:
        """`client` is the guarded one; whoever made it closes it."""
        self.config = config
        self._client = client
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def authorization_url(self, *, redirect_uri: str, state: str, nonce: str, verifier: str, fresh: bool) -> str:
        """Where the browser is sent: authorization code with PKCE (S256). Raises ProviderAwayError, ProviderRefusedError."""
        more: dict[str, str] = {"nonce": nonce, "code_challenge_method": "S256"}
        more["code_challenge"] = str(_pkce.create_s256_code_challenge(verifier))
        if fresh:
            # Both, since each has providers that know it alone; the age of the login is read from the token either way.
            more |= {"prompt": "login", "max_age": "0"}
        metadata = await self.metadata()
        scope = " ".join(self.config.scopes)
        return str(
            _parameters.prepare_grant_uri(
                metadata.authorization_endpoint,
                self.config.client_id,
                "code",
                redirect_uri=redirect_uri,
                scope=scope,
                state=state,
                **more,
            )
        )

    async def end_session_url(self, *, goes_to: str) -> str | None:
        """Where the browser is sent to log out of the provider, which sends it on to `goes_to`; None where it has no such door.

        The ID token is not kept, so the provider is told who we are and not of whom, and asks the person where it must. Raises
        ProviderAwayError, ProviderRefusedError.
        """
        door = (await self.metadata()).end_session_endpoint
        if door is None or not self.config.log_out:
            return None
        query = urlencode({"client_id": self.config.client_id, "post_logout_redirect_uri": goes_to})
        return f"{door}{'&' if '?' in door else '?'}{query}"

    async def verified(self, *, code: str, redirect_uri: str, verifier: str, nonce: str, now: float) -> Verified:
        """Exchange the code and check the ID token; `now` is the database's time.

        Raises ProviderAwayError, ProviderRefusedError.
        """
        metadata = await self.metadata()
        answer = await self._exchange(metadata, code=code, redirect_uri=redirect_uri, verifier=verifier)
        id_token, access_token = answer.get("id_token"), answer.get("access_token")
        if not isinstance(id_token, str) or not id_token or len(id_token) > _LONGEST_TOKEN:
            raise ProviderRefusedError("id_token")
        token = await self._signed(metadata, id_token)
        claims = _core.CodeIDToken(
            token.claims,
            token.header,
            options={
                "iss": {"essential": True, "value": self.config.issuer},
                "aud": {"essential": True, "value": self.config.client_id},
            },
            params={"nonce": nonce, "client_id": self.config.client_id, "access_token": access_token},
        )
        try:
            claims.validate(now=int(now), leeway=LEEWAY_S)
        except JoseError as error:
            raise ProviderRefusedError(getattr(error, "claim", None) or error.error) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ProviderRefusedError("claims") from error
        return self._believed(dict(token.claims), now)

    async def metadata(self) -> Metadata:
        """The provider's own description, read anew after an hour. Raises ProviderAwayError, ProviderRefusedError."""
        if self._metadata is None or monotonic() - self._metadata[0] > KEEP_S:
            found = await self._get(self.config.issuer.rstrip("/") + "/.well-known/openid-configuration")
            self._metadata = (monotonic(), self._described(found))
        return self._metadata[1]

    def _described(self, found: Mapping[str, Any]) -> Metadata:
        if found.get("issuer") != self.config.issuer:
            # Whoever describes itself as somebody else does not speak for the issuer that was set.
            raise ProviderRefusedError("metadata_issuer")
        doors: list[str] = []
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            url = _door(found.get(name))
            if url is None:
                raise ProviderRefusedError(f"metadata_{name}")
            doors.append(url)
        names_itself = found.get("authorization_response_iss_parameter_supported") is True
        # Nobody is kept from logging in by a way out that cannot be used.
        return Metadata(*doors, names_itself=names_itself, end_session_endpoint=_door(found.get("end_session_endpoint")))

    async def _exchange(self, metadata: Metadata, *, code: str, redirect_uri: str, verifier: str) -> dict[str, Any]:
        config = self.config
        body = str(_parameters.prepare_token_request("authorization_code", "", redirect_uri, code=code, code_verifier=verifier))
        sent = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        secret = config.client_secret.get_secret_value() if config.client_secret else ""
        us = _auth.ClientAuth(config.client_id, secret, config.client_auth if secret else "none")
        url, sent, body = us.prepare("POST", metadata.token_endpoint, sent, body)
        status, answer = await self._ask("POST", str(url), headers=sent, content=str(body).encode())
        if status != _OK:
            raise ProviderRefusedError("code")
        return answer

    async def _signed(self, metadata: Metadata, id_token: str) -> jwt.Token:
        """The token with its signature checked. A key that nobody knows yet makes the set be read once more."""
        keys = await self._key_set(metadata)
        try:
            try:
                return jwt.decode(id_token, keys, algorithms=list(self.config.algorithms))
            except InvalidKeyIdError:
                newer = await self._key_set(metadata, at_most_s=AGAIN_S)
                if newer is keys:
                    raise
                return jwt.decode(id_token, newer, algorithms=list(self.config.algorithms))
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise ProviderRefusedError("signature") from error

    async def _key_set(self, metadata: Metadata, *, at_most_s: float = KEEP_S) -> KeySet:
        if self._keys is None or monotonic() - self._keys[0] > at_most_s:
            found = await self._get(metadata.jwks_uri)
            given: Any = found.get("keys")
            listed = cast("list[Any]", given) if isinstance(given, list) else []
            # A shared secret published as a key is nobody's; keys for encryption sign nothing.
            usable = [cast("dict[str, Any]", key) for key in listed if may_sign(key)]
            try:
                keys = KeySet.import_key_set(cast("Any", {"keys": usable}))
            except (JoseError, ValueError, TypeError, KeyError) as error:
                raise ProviderRefusedError("jwks") from error
            self._keys = (monotonic(), keys)
        return self._keys[1]

    def _believed(self, claims: dict[str, Any], now: float) -> Verified:
        subject = claims["sub"]
        if not isinstance(subject, str) or not subject.strip() or len(subject) > _LONGEST_SUBJECT or "\0" in subject:
            raise ProviderRefusedError("sub")
        name, seen = claim_of(claims, self.config.name_claim), claims.get("auth_time")
        return Verified(
            subject,
            name if isinstance(name, str) else None,
            names_in(claim_of(claims, self.config.groups_claim)),
            min(float(seen), now) if isinstance(seen, (int, float)) and not isinstance(seen, bool) else None,
        )

    async def _get(self, url: str) -> dict[str, Any]:
        status, answer = await self._ask("GET", url, headers={"Accept": "application/json"})
        if status != _OK:
            raise ProviderAwayError(f"{self.config.name} answered {status}")
        return answer

    async def _ask(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None
    ) -> tuple[int, dict[str, Any]]:
        try:
            answer = await self._client.request(method, url, headers=headers, content=content, deadline_s=DEADLINE_S, cap=CAP)
        except (EgressRefused, NotSent, MaybeSent, ValueError) as error:
            raise ProviderAwayError(f"{self.config.name} cannot be reached: {type(error).__name__}") from error
        if answer.status != _OK:
            return answer.status, {}
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise ProviderAwayError(f"{self.config.name} did not answer in JSON") from error
        if not isinstance(found, dict):
            raise ProviderAwayError(f"{self.config.name} did not answer with an object")
        return answer.status, cast("dict[str, Any]", found)


def _door(url: Any) -> str | None:
    """An address that a provider publishes, where it can be used."""
    try:
        usable = isinstance(url, str) and url.isascii() and is_safe(url) and not check_url(url).fragment
    except EgressRefused:
        usable = False
    return str(url) if usable else None


def new_state() -> str:
    """256 random bits that name one login."""
    return secrets.token_urlsafe(32)


def may_sign(key: Any) -> bool:
    """Whether a published key is a public one that is there to sign."""
    if not isinstance(key, dict):
        return False
    given = cast("dict[str, Any]", key)
    return given.get("kty") in _PUBLIC and given.get("use", "sig") == "sig"


def claim_of(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name, or by a dotted path where none has the whole name."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    return found


def names_in(value: Any) -> frozenset[str]:
    """The names in a claim of groups: a list of texts, or one text. Anything else names nothing."""
    if isinstance(value, str):
        return frozenset({value})
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return frozenset(one for one in listed if isinstance(one, str))

"""The keys that an issuer of access tokens publishes, read so that nobody who sends us tokens can make us ask it often.

A set is used for ten minutes and then read again beside the work; it is believed for an hour at most while the issuer is away.
A key that nobody knows makes it be read sooner. However many ask, one reading is under way, and ten seconds lie between the
beginnings of two, whether they succeed or not: what arrives here never becomes a flood there.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, cast

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, RSAKey

from deedbox.access.oidc import CAP, DEADLINE_S, ProviderAwayError, ProviderRefusedError, may_sign
from deedbox.access.provider_settings import is_safe
from deedbox.egress import EgressClient, EgressRefused, MaybeSent, NotSent, check_url
from deedbox.telemetry import log

REFRESH_S = 600.0
"""Seconds after which a set is read again."""
MOST_S = 3600.0
"""Seconds for which a set is believed that could not be read again."""
AGAIN_S = 10.0
"""Seconds between the beginnings of two readings."""
MOST_KEYS = 100
_SHORTEST_RSA = 2048
_OK = 200
_NONE = 404
_WELL_KNOWN = "/.well-known/"

Key = RSAKey | ECKey


class Published:
    """What one issuer publishes of its keys."""

    def __init__(self, issuer: str, client: EgressClient, *, jwks_uri: str | None = None) -> None:
        """`client` is the guarded one, whoever made it closes it; with `jwks_uri` the issuer's description is not read."""
        self._issuer = issuer
        self._client = client
        self._jwks_uri = jwks_uri
        self._keys: Sequence[tuple[Key, str | None, str | None]] | None = None
        self._read_at = float("-inf")
        self._began_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def keys(self, kid: str | None, algorithm: str) -> list[Key]:
        """Those that may have signed a token with this header; empty where none may.

        Raises ProviderAwayError where no set can be had that is young enough to be believed.
        """
        if not self._is_believed():
            await self._read(wait=True)
        elif monotonic() - self._read_at > REFRESH_S:
            await self._read(wait=False)
        found = self._matching(kid, algorithm)
        if not found:
            # Sooner than it is due, for a key that is new; or once more for the reading that is under way.
            await self._read(wait=True)
            found = self._matching(kid, algorithm)
        if not self._is_believed():
            raise ProviderAwayError("its keys cannot be read")
        return found

    async def aclose(self) -> None:
        """Give up what is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _is_believed(self) -> bool:
        return self._keys is not None and monotonic() - self._read_at <= MOST_S

    def _matching(self, kid: str | None, algorithm: str) -> list[Key]:
        wanted = "EC" if algorithm.startswith("ES") else "RSA"
        return [
            key
            for key, known_as, only in self._keys or ()
            if key.key_type == wanted and only in {None, algorithm} and kid in {None, known_as}
        ]

    async def _read(self, *, wait: bool) -> None:
        if self._reading is None:
            if monotonic() - self._began_at < AGAIN_S:
                return
            self._began_at = monotonic()
            # Held by the object and by nobody who asked: who goes away does not end it for the others.
            self._reading = asyncio.create_task(self._read_once())
        if wait:
            await asyncio.wait([self._reading])

    async def _read_once(self) -> None:
        try:
            found = await self._get(self._jwks_uri or await self._described())
            self._keys = _usable((found or {}).get("keys"))
            self._read_at = monotonic()
        except (ProviderAwayError, ProviderRefusedError) as error:
            log("access").warning("issuer_away", issuer=self._issuer, error=type(error).__name__, why=str(error))
        except Exception:  # noqa: BLE001 -- whoever waits is told that there are no keys; the log has the rest
            log("access").exception("issuer_away", issuer=self._issuer)
        finally:
            self._reading = None

    async def _described(self) -> str:
        """Where the issuer says its keys are, in either of the two descriptions that there are (OpenID, RFC 8414)."""
        base, _, path = self._issuer.removesuffix("/").partition("://")[2].partition("/")
        origin = f"{self._issuer.partition('://')[0]}://{base}"
        found = await self._get(f"{self._issuer.removesuffix('/')}{_WELL_KNOWN}openid-configuration")
        if found is None:
            found = await self._get(f"{origin}{_WELL_KNOWN}oauth-authorization-server{'/' + path if path else ''}")
        if found is None:
            raise ProviderAwayError("it does not describe itself")
        if found.get("issuer") != self._issuer:
            # Whoever describes itself as somebody else does not speak for the issuer that was set.
            raise ProviderRefusedError("metadata_issuer")
        uri = found.get("jwks_uri")
        try:
            usable = isinstance(uri, str) and uri.isascii() and is_safe(uri) and not check_url(uri).fragment
        except EgressRefused:
            usable = False
        if not usable:
            raise ProviderRefusedError("metadata_jwks_uri")
        return str(uri)

    async def _get(self, url: str) -> Mapping[str, Any] | None:
        try:
            answer = await self._client.request(
                "GET", url, headers={"Accept": "application/json"}, deadline_s=DEADLINE_S, cap=CAP
            )
        except (EgressRefused, NotSent, MaybeSent, ValueError) as error:
            raise ProviderAwayError(f"it cannot be reached: {type(error).__name__}") from error
        if answer.status == _NONE:
            return None
        if answer.status != _OK:
            raise ProviderAwayError(f"it answered {answer.status}")
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise ProviderAwayError("it did not answer in JSON") from error
        if not isinstance(found, dict):
            raise ProviderAwayError("it did not answer with an object")
        return cast("dict[str, Any]", found)


def _usable(given: Any) -> list[tuple[Key, str | None, str | None]]:
    """The public keys that may sign, each with its id and the one algorithm it is for. Raises ProviderRefusedError for none.

    A shared secret that is published as a key is nobody's, a short one is as good as none, and one that cannot be read does not
    spoil the others.
    """
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    found: list[tuple[Key, str | None, str | None]] = []
    for one in listed[:MOST_KEYS]:
        if not may_sign(one):
            continue
        try:
            key = JWKRegistry.import_key(one)
            named, only = one.get("kid"), one.get("alg")
            long_enough = not isinstance(key, RSAKey) or key.public_key.key_size >= _SHORTEST_RSA
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, (RSAKey, ECKey)) and long_enough and not key.is_private:
            found.append((key, named if isinstance(named, str) else None, only if isinstance(only, str) else None))
    if not found:
        raise ProviderRefusedError("jwks")
    return found

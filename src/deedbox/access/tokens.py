"""Access tokens as a resource server takes them (OAuth 2.1, RFC 9068): what is checked, and what of it is believed.

A token counts when a published key of an issuer that settings name signed it with a public-key algorithm that settings allow,
for us, and now. Nothing here keeps it, and nobody is handed it: what goes on from here is a principal.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from joserfc import jws
from joserfc.errors import JoseError

from deedbox.access.bearer_settings import BearerConfig
from deedbox.access.oidc import LEEWAY_S, claim_of, names_in
from deedbox.access.published import Key, Published
from deedbox.model.identity import Verb
from deedbox.model.values import storable_text

LONGEST = 16 * 1024
_LONGEST_SUBJECT = 255
_TYPES = frozenset({None, "jwt", "at+jwt", "application/at+jwt"})


class TokenRefusedError(Exception):
    """A token that is not believed. `why` is a word for the log, never shown to the caller."""

    def __init__(self, why: str) -> None:
        """`why` names the check that failed."""
        super().__init__(why)
        self.why = why


@dataclass(frozen=True, slots=True)
class Signed:
    """What a token says that a key of this issuer signed; whether it is for us and still good is not known yet."""

    config: BearerConfig
    claims: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What is believed of a token: whom it is about, who acts for that person, for what it was issued, and when.

    `groups` is None for a token that says nothing of groups. `issued_at` is in seconds since 1970.
    """

    subject: str
    actor: str | None
    name: str | None
    groups: frozenset[str] | None
    scope: frozenset[Verb]
    issued_at: float


async def signed(bearer: str, issuers: Mapping[str, tuple[BearerConfig, Published]]) -> Signed:
    """The token, once its signature holds. Raises TokenRefusedError, ProviderAwayError.

    The issuer it names only chooses whose keys are tried. Keys, addresses and certificates in its header are not looked at.
    """
    if len(bearer) > LONGEST or not bearer.isascii():
        raise TokenRefusedError("size")
    try:
        token = jws.extract_compact(bearer.encode())
        header, claims = token.headers(), json.loads(token.payload)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise TokenRefusedError("form") from error
    named = cast("dict[str, Any]", claims).get("iss") if isinstance(claims, dict) else None
    config, published = issuers.get(named if isinstance(named, str) else "", (None, None))
    if config is None or published is None:
        raise TokenRefusedError("iss")
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    # Before any key is looked for: `none`, HMAC and whatever else settings do not name ends here.
    if algorithm not in config.algorithms:
        raise TokenRefusedError("alg")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise TokenRefusedError("typ")
    if kid is not None and not isinstance(kid, str):
        raise TokenRefusedError("kid")
    for key in await published.keys(kid, algorithm):
        if _fits(bearer, key, algorithm):
            return Signed(config, cast("dict[str, Any]", claims))
    raise TokenRefusedError("signature")


def _fits(bearer: str, key: Key, algorithm: str) -> bool:
    try:
        jws.deserialize_compact(bearer.encode(), key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError, KeyError):
        return False
    return True


def believed(token: Signed, audience: frozenset[str], now: float) -> Claimed:
    """What it says, where it is for us and good at `now`, the database's time. Raises TokenRefusedError."""
    claims, config = token.claims, token.config
    if not names_in(claims.get("aud")) & (frozenset(config.audience) if config.audience else audience):
        raise TokenRefusedError("aud")
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires is None or now >= expires + LEEWAY_S:
        raise TokenRefusedError("exp")
    if issued is None or issued > now + LEEWAY_S:
        raise TokenRefusedError("iat")
    if "nbf" in claims and (_time(claims, "nbf") or float("inf")) > now + LEEWAY_S:
        raise TokenRefusedError("nbf")
    # What says who logged in somewhere is no right to call; what is bound to a key (RFC 9449, 8705) is none without its proof.
    if "at_hash" in claims or "c_hash" in claims or str(claims.get("typ", "")).lower() in {"id", "refresh", "logout"}:
        raise TokenRefusedError("id_token")
    if claims.get("cnf") is not None:
        raise TokenRefusedError("cnf")
    actor: str | None = None
    if "act" in claims:
        actor = subject_of(cast("dict[str, Any]", claims["act"]) if isinstance(claims["act"], dict) else {}, "act")
    name, groups = claim_of(claims, config.name_claim), claim_of(claims, config.groups_claim)
    return Claimed(
        subject_of(claims, "sub"),
        actor,
        name if isinstance(name, str) else None,
        None if groups is None else names_in(groups),
        config.verbs_of(_scopes(claims)),
        min(issued, now),
    )


def subject_of(claims: Mapping[str, Any], why: str) -> str:
    """Who is meant. Raises TokenRefusedError with that word for a subject that nobody can have."""
    subject = claims.get("sub")
    if (
        not isinstance(subject, str)
        or not subject.strip()
        or len(subject) > _LONGEST_SUBJECT
        or storable_text(subject) != subject
    ):
        raise TokenRefusedError(why)
    return subject


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """The names in `scope`, a text with blanks (RFC 8693, 9068), or in `scp`, a text or a list, as some issuers write it."""
    found: frozenset[str] = frozenset()
    for name in ("scope", "scp"):
        found |= frozenset(word for one in names_in(claims.get(name)) for word in one.split())
    return found

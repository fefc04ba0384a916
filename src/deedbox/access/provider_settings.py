"""What settings say of an issuer: where it is, who we are there, and which of its groups give which roles."""

import re
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from deedbox.egress import EgressRefused, check_url

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""What a token may be signed with: a public key alone. `none` and HMAC, whose key others may hold, cannot be set."""

_PLAIN = re.compile(r"[\x21-\x7e]+")
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,62}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def is_safe(url: str) -> bool:
    """Whether secrets may be sent to the URL: https, or http on loopback."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and (parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback)
    except ValueError:
        return False


def is_scope(name: str) -> bool:
    """Whether it can be the name of a scope (RFC 6749)."""
    return _SCOPE.fullmatch(name) is not None


def plain_url(value: str) -> str:
    """The URL of an issuer or of its keys. Raises ValueError for one that tokens are not to be believed from."""
    try:
        check_url(value)
    except EgressRefused as error:
        raise ValueError(f"{error}") from error
    parts = urlsplit(value)
    if parts.query or parts.fragment or not is_safe(value):
        raise ValueError("must be https (http on loopback alone) without query and fragment")
    return value


class IssuerConfig(BaseModel):
    """Somebody who says who people are. Raises pydantic.ValidationError naming the field that is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$", description="Its name in our paths and journals.")
    issuer: str = Field(description="Its issuer, exactly as it writes it.")
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "PS256", "ES256"), min_length=1)
    groups_claim: str = Field(default="groups", min_length=1, max_length=255)
    name_claim: str = Field(default="preferred_username", min_length=1, max_length=255)
    roles: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict[str, tuple[str, ...]])
    log_out: bool = Field(default=True, description="Whether people log out there too, where it publishes how.")
    tenant: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")

    @field_validator("issuer")
    @classmethod
    def _plain_issuer(cls, value: str) -> str:
        return plain_url(value)

    @field_validator("roles")
    @classmethod
    def _that_are_roles(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for group, roles in value.items():
            if not group.strip() or not all(_ROLE.fullmatch(role) for role in roles):
                raise ValueError(f"{group!r} must be a group with the names of roles")
        return value

    def roles_of(self, groups: frozenset[str]) -> list[str]:
        """The roles that these groups give; a group that settings do not name gives nothing."""
        return sorted({role for group in groups for role in self.roles.get(group, ())})


class ProviderConfig(IssuerConfig):
    """An OpenID provider at which people log in. Raises pydantic.ValidationError naming the field that is wrong."""

    title: str | None = Field(default=None, min_length=1, max_length=60, description="Its name on the login page.")
    client_id: str = Field(min_length=1, max_length=255)
    client_secret: SecretStr | None = None
    client_auth: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    scopes: tuple[str, ...] = ("openid", "profile")

    @field_validator("client_id")
    @classmethod
    def _plain_id(cls, value: str) -> str:
        if not _PLAIN.fullmatch(value):
            raise ValueError("must be printable ASCII without blanks")
        return value

    @field_validator("client_secret")
    @classmethod
    def _plain_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _PLAIN.fullmatch(value.get_secret_value()):
            raise ValueError("must be printable ASCII without blanks")
        return value

    @field_validator("title")
    @classmethod
    def _plain_title(cls, value: str | None) -> str | None:
        if value is not None and not value.isprintable():
            raise ValueError("must be printable and in one line")
        return value

    @field_validator("scopes")
    @classmethod
    def _with_openid(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in value or not all(is_scope(one) for one in value):
            raise ValueError("must be scope names, `openid` among them")
        return value

    @property
    def shown(self) -> str:
        """What people are told it is called."""
        return self.title or self.name

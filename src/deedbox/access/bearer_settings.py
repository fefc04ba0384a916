"""What settings say of an issuer of access tokens: for what its tokens must be meant, and what its scopes let them do."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from deedbox.access.provider_settings import IssuerConfig, ProviderConfig, is_scope, plain_url
from deedbox.model.identity import VERBS, Verb

OWN_SCOPES: dict[str, tuple[Verb, ...]] = {f"deedbox:{verb}": (verb,) for verb in VERBS}
"""The scopes that are understood where settings name no others: one for each verb."""


class ServiceSubject(BaseModel):
    """A program whose tokens are taken: which service it is here, and whether it may act for people."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    service: str = Field(min_length=1, max_length=200, description="The service's name, as `deedbox keys add` made it.")
    acts_for_others: bool = False


class BearerConfig(IssuerConfig):
    """An issuer whose access tokens are taken. Raises pydantic.ValidationError naming the field that is wrong."""

    audience: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, description="What `aud` must hold one of; unset: the URLs of this server."
    )
    jwks_uri: str | None = Field(default=None, description="Where its keys are; unset: where it says itself.")
    scopes: dict[str, tuple[Verb, ...]] = Field(
        default_factory=lambda: dict(OWN_SCOPES), min_length=1, description="Its scopes, and the verbs each stands for."
    )
    unscoped: tuple[Verb, ...] = Field(default=(), description="What a token may do that names none of these scopes.")
    people: Literal["made", "known"] = Field(default="made", description="Whether a person not seen before is made.")
    services: dict[str, ServiceSubject] = Field(
        default_factory=dict[str, ServiceSubject], description="Subjects that are programs, and which service each is."
    )

    @field_validator("jwks_uri")
    @classmethod
    def _plain_keys(cls, value: str | None) -> str | None:
        return value if value is None else plain_url(value)

    @field_validator("audience")
    @classmethod
    def _plain_audience(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and not all(one.strip() and one.isprintable() for one in value):
            raise ValueError("must be names or URLs")
        return value

    @field_validator("scopes")
    @classmethod
    def _that_are_scopes(cls, value: dict[str, tuple[Verb, ...]]) -> dict[str, tuple[Verb, ...]]:
        if not all(is_scope(name) and verbs for name, verbs in value.items()):
            raise ValueError("must be scope names, each with the verbs that it stands for")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if any(not subject.strip() for subject in self.services):
            raise ValueError("services: a subject is empty")
        return self

    @property
    def gives_roles(self) -> bool:
        """Whether its groups say anything of roles; else the roles that people have here stay as they are."""
        return "roles" in self.model_fields_set

    def like(self, providers: tuple[ProviderConfig, ...], tenant: str) -> "BearerConfig":
        """The same with the groups and roles of the provider at which the same people log in, where it names none itself.

        Raises ValueError where the two say different things of the same people. `tenant` is that of whoever names none.
        """
        for one in providers:
            if (one.issuer, one.tenant or tenant) != (self.issuer, self.tenant or tenant):
                continue
            if not self.gives_roles:
                same = {"roles": one.roles, "groups_claim": one.groups_claim}
                return self.model_copy(update=same) if one.roles else self
            if self.roles != one.roles:
                raise ValueError(f"bearer: {self.name} gives other roles than oidc: {one.name} of the same issuer")
        return self

    def verbs_of(self, named: frozenset[str]) -> frozenset[Verb]:
        """What a token may do that was issued for scopes of these names; foreign ones stand for nothing."""
        known = [verbs for name, verbs in self.scopes.items() if name in named]
        return frozenset(verb for verbs in known for verb in verbs) if known else frozenset(self.unscoped)

    def scopes_for(self, verbs: frozenset[Verb]) -> list[str]:
        """The names of the scopes that stand for any of the verbs."""
        return [name for name, stands_for in self.scopes.items() if verbs & frozenset(stands_for)]

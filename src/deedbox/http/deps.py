"""What the HTTP face stands on. Everything is handed in: the face authenticates, translates and calls."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.extend.registry import App
from deedbox.intake.submit import Accepted
from deedbox.intake.submit import Request as Submission
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.cards import Decide, ListInbox, ShowCard
from deedbox.operate.follow import NeverWakes, Wakes
from deedbox.operate.verbs import EffectVerb
from deedbox.operate.views import Views

LONGEST_WAIT_S = 25.0
"""Nothing waits longer than this for a job, whatever is asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest sizes in bytes: of a JSON body and of all text parts, of one uploaded file, and of a whole multipart body.

    A whole body holds four of the largest files where nothing else is said.
    """

    json_bytes: int = 1 << 20
    upload_bytes: int = 25 << 20
    total_bytes: int | None = None
    parts: int = 100

    @property
    def whole_bytes(self) -> int:
        """The limit on a whole multipart body."""
        return 4 * self.upload_bytes if self.total_bytes is None else self.total_bytes


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A login that succeeded: a personal key, how many seconds it lives, and whose it is."""

    token: str
    expires_in_s: float
    principal: Principal


class Submits(Protocol):
    """Makes jobs; deedbox.intake.submit.Intake does."""

    async def submit(self, request: Submission) -> Accepted:
        """Store the job and return it after commit. Raises DeedboxError."""
        ...


class ApprovalDoor(Protocol):
    """Approvals; deedbox.operate.approvals.Approvals is one. The members are those of deedbox.operate.cards."""

    @property
    def card(self) -> ShowCard:
        """Reads one approval."""
        ...

    @property
    def inbox(self) -> ListInbox:
        """Lists what waits."""
        ...

    @property
    def decide(self) -> Decide:
        """Decides one approval."""
        ...


class OperatorVerbs(Protocol):
    """What operators do; deedbox.operate.verbs.Verbs does it. All raise DeedboxError and check what the principal may."""

    async def switch_state(self, tenant: str) -> Mapping[str, Any]:
        """Both halves of the switch, with who, when and why, and how many effects are on the wire."""
        ...

    async def set_switch(
        self,
        principal: Principal,
        is_on: bool,  # noqa: FBT001 -- the state that is asked for
        reason: str,
        door: str,
    ) -> Mapping[str, Any]:
        """Turn the database's half and return the state."""
        ...

    async def effects(
        self, principal: Principal, state: str | None = None, *, before: UUID | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """A page of the ledger, newest first."""
        ...

    async def effect(self, principal: Principal, effect_id: UUID) -> Mapping[str, Any]:
        """One effect with its evidence."""
        ...

    async def effect_verb(
        self,
        principal: Principal,
        effect_id: UUID,
        verb: EffectVerb,
        *,
        evidence: Mapping[str, Any] | None = None,
        reason: str | None = None,
        door: str = "api",
    ) -> Mapping[str, Any]:
        """Do one thing about an effect and return it."""
        ...

    async def cancel_job(self, principal: Principal, job_id: UUID, reason: str, *, door: str = "api") -> str:
        """Cancel a job; `canceled` or `cancel_requested`."""
        ...


Login = Callable[[str, str, str], Awaitable[LoggedIn | None]]
"""Name, password and the caller's address to a personal key; None where they do not fit. May raise too_many_logins."""

Refused = Callable[[Submission, DeedboxError], Awaitable[None]]
"""Journals a call that the face refused before intake saw it; its `body` is None. Must not raise."""


async def always_ready() -> Mapping[str, str]:
    """A readiness that finds nothing wrong."""
    return {}


@dataclass(frozen=True, slots=True)
class HttpDeps:
    """What the face is composed of.

    `resolve_key` says who holds a bearer key; it may raise what the driver raises. `public_url` is where others reach this
    server: links are made from it, never from Host. `ready` returns what is not ready and why; empty means ready.
    `stopping` ends waits and streams, so that a server can stop. `refused` journals what the face itself refuses.
    """

    app: App
    intake: Submits
    views: Views
    resolve_key: Callable[[str], Awaitable[Principal | None]]
    verbs: OperatorVerbs
    approvals: ApprovalDoor
    public_url: str
    login: Login | None = None
    wakeup: Wakes = field(default_factory=NeverWakes)
    limits: Limits = field(default_factory=Limits)
    extra_routes: tuple[BaseRoute, ...] = ()
    ready: Callable[[], Awaitable[Mapping[str, str]]] = always_ready
    metrics: CollectorRegistry = telemetry.REGISTRY
    refused: Refused | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    keep_alive_s: float = 15.0

    @property
    def base_url(self) -> str:
        """The public URL without a slash at its end."""
        return self.public_url.rstrip("/")

"""What the HTTP face stands on. Everything is handed in: the face authenticates, translates and calls."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from deedbox import telemetry
from deedbox.access import IdSource, KeyCache, Pool
from deedbox.extend.registry import App
from deedbox.intake.request import Request as Submission
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError
from deedbox.model.identity import Principal
from deedbox.operate.alerts import AlertDesk
from deedbox.operate.approvals import Approvals
from deedbox.operate.auditing import Auditing
from deedbox.operate.callbacks import Callbacks
from deedbox.operate.follow import NeverWakes, Wakes
from deedbox.operate.lanes import Lanes
from deedbox.operate.policy import Policies
from deedbox.operate.report import Reports
from deedbox.operate.rounds import Rounds
from deedbox.operate.targets import Targets
from deedbox.operate.tools import Tools
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import Views

if TYPE_CHECKING:
    from deedbox.access.bearer import Bearer, Face

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


Login = Callable[[str, str, str], Awaitable[LoggedIn | None]]
"""Name, password and the caller's address to a personal key; None where they do not fit. May raise too_many_logins."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Where people's keys and sessions are, and the memory of keys that the process shares."""

    pool: Pool
    ids: IdSource
    keys: KeyCache


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
    `stopping` ends waits and streams, so that a server can stop. `refused` journals what the face itself refuses. Without
    `identity` nobody acts for others, and there are no form keys, status tokens, or routes for one's own keys and sessions.
    Without `bearer` there are no access tokens; with it, `resolve_key` resolves those that are for this
    `face`.
    """

    app: App
    intake: Intake
    views: Views
    resolve_key: Callable[[str], Awaitable[Principal | None]]
    verbs: Verbs
    approvals: Approvals
    rounds: Rounds
    lanes: Lanes
    policies: Policies
    alerts: AlertDesk
    targets: Targets
    public_url: str
    callbacks: Callbacks | None = None
    auditing: Auditing | None = None
    tools: Tools | None = None
    reports: Reports | None = None
    login: Login | None = None
    wakeup: Wakes = field(default_factory=NeverWakes)
    limits: Limits = field(default_factory=Limits)
    extra_routes: tuple[BaseRoute, ...] = ()
    ready: Callable[[], Awaitable[Mapping[str, str]]] = always_ready
    metrics: CollectorRegistry = telemetry.REGISTRY
    refused: Refused | None = None
    identity: Identity | None = None
    bearer: "Bearer | None" = None
    face: "Face" = "api"
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    keep_alive_s: float = 15.0

    @property
    def base_url(self) -> str:
        """The public URL without a slash at its end."""
        return self.public_url.rstrip("/")

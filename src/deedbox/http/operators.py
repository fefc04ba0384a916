"""What people do: log in, decide, turn the switch, settle effects. The face checks shapes; who may is checked below it."""

from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from pydantic import Field, StrictBool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from deedbox.http import headers
from deedbox.http.body import StrictBody, read_model
from deedbox.http.deps import HttpDeps
from deedbox.http.jobs import answer, plain
from deedbox.http.routing import known, note_job, route
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.identity import Principal
from deedbox.operate.verbs import EffectVerb, Narrow

if TYPE_CHECKING:
    from deedbox.operate.cards import Show

_DOOR = "api"
_LONGEST_REASON = 2000


class LoginBody(StrictBody):
    """Name and password of a local account."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=1024)


class DecisionBody(StrictBody):
    """A decision, the digest of exactly what was shown, and a reason where it is a rejection."""

    decision: Literal["approve", "reject"]
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    reason: str | None = Field(default=None, max_length=_LONGEST_REASON)
    repeat: list[str] = Field(default_factory=list[str], max_length=100)
    """Slots that the replaced job has done, or may have done, and that are to be done again."""


class SwitchBody(StrictBody):
    """What the database's half of the switch is to be, and why."""

    on: StrictBool
    reason: str = Field(max_length=_LONGEST_REASON)
    tenant: str | None = Field(default=None, min_length=1, max_length=200)
    """With one of these four the part of all acts that it names is turned; without any, all of them."""
    action: str | None = Field(default=None, min_length=1, max_length=200)
    connector: str | None = Field(default=None, min_length=1, max_length=200)
    target: str | None = Field(default=None, min_length=1, max_length=1000)
    owner: str | None = Field(default=None, min_length=1, max_length=200)


class EffectBody(StrictBody):
    """What is known about an effect, and why the verb is used."""

    evidence: dict[str, Any] | None = None
    reason: str | None = Field(default=None, max_length=_LONGEST_REASON)


class Operators:
    """The handlers of approvals, the switch, effects and the login."""

    def __init__(self, deps: HttpDeps) -> None:
        """Only what `deps` holds is called."""
        self._deps = deps

    def routes(self) -> list[BaseRoute]:
        """The routes; the login is there only where it is wired."""
        deps = self._deps
        found: list[BaseRoute] = [
            route("/api/approvals", GET=known(deps, self.inbox)),
            route("/api/approvals/{approval_id}", GET=known(deps, self.card)),
            route("/api/approvals/{approval_id}/decision", POST=known(deps, self.decide)),
            route("/api/switch", GET=known(deps, self.switch), PUT=known(deps, self.turn)),
            route("/api/switch/test", POST=known(deps, self.try_switch)),
            route("/api/effects", GET=known(deps, self.effects)),
            route("/api/effects/{effect_id}", GET=known(deps, self.effect)),
            route("/api/effects/{effect_id}/{verb}", POST=known(deps, self.settle)),
        ]
        if deps.login is not None:
            found.append(route("/api/login", POST=self.log_in))
        return found

    async def log_in(self, request: Request) -> Response:
        """POST /api/login: a session's bearer for a name and a password. The one changing route without a key."""
        body = await read_model(request, LoginBody, self._deps.limits.json_bytes)
        peer = request.client.host if request.client else ""
        opened = await self._deps.login(body.name, body.password, peer) if self._deps.login else None
        if opened is None:
            raise DeedboxError("unauthenticated", "The name and the password do not fit together.")
        principal = opened.principal
        whose = {"name": principal.name, "tenant": principal.tenant, "roles": sorted(principal.roles)}
        return answer({"token": opened.token, "expires_in_s": opened.expires_in_s, "principal": whose})

    async def inbox(self, request: Request, principal: Principal) -> Response:
        """GET /api/approvals: what waits for a person, and what leaves by itself unless it is canceled, the nearest first.

        `?show=` names a part of it, or what this person has decided.
        """
        show = cast("Show", headers.text_parameter(request, "show") or "all")
        lines = await self._deps.approvals.inbox(principal.tenant, principal, show)
        soon = await self._deps.approvals.announced(principal.tenant, principal)
        return answer({"approvals": plain(lines), "announced": plain(soon)})

    async def card(self, request: Request, principal: Principal) -> Response:
        """GET /api/approvals/{id}: everything that a person decides on, with its digest. Changes nothing."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        card = await self._deps.approvals.card(principal.tenant, approval_id, principal)
        if card is None:
            raise headers.no_such("approval")
        note_job(request, card.job_id)
        return answer({**plain(card), "digest": card.digest_hex})

    async def decide(self, request: Request, principal: Principal) -> Response:
        """POST /api/approvals/{id}/decision, by a person's own key."""
        approval_id = headers.path_id(request, "approval_id", "approval")
        body = await read_model(request, DecisionBody, self._deps.limits.json_bytes)
        done = await self._deps.approvals.decide(
            principal, approval_id, body.digest, body.decision, body.reason, _DOOR, body.repeat
        )
        return answer(plain(done))

    async def switch(self, _request: Request, principal: Principal) -> Response:
        """GET /api/switch: both halves, with who, when and why, and how many effects are on the wire."""
        if not principal.may("read"):
            raise DeedboxError("permission_denied", "Reading the switch needs a role that may read.")
        return answer(plain(await self._deps.verbs.switch_state(principal.tenant)))

    async def turn(self, request: Request, principal: Principal) -> Response:
        """PUT /api/switch: a program may turn it off; only a person turns it on."""
        body = await read_model(request, SwitchBody, self._deps.limits.json_bytes)
        part = Narrow(body.tenant, body.action, body.connector, body.target)
        if part != Narrow() and body.owner is not None:
            problem = Problem("/owner", "alone", "the owner is one for the whole switch")
            raise DeedboxError("invalid_input", "A part of the switch has no owner of its own.", problems=(problem,))
        turned = self._deps.verbs.set_switch(
            principal, body.on, body.reason, _DOOR, narrow=None if part == Narrow() else part, owner=body.owner
        )
        return answer(plain(await turned))

    async def try_switch(self, _request: Request, principal: Principal) -> Response:
        """POST /api/switch/test: show that nothing is leased while it is off; nothing is sent."""
        trials = await self._deps.verbs.test_switch(principal, door=_DOOR)
        return answer({"passed": all(one.passed for one in trials), "trials": plain(trials)})

    async def effects(self, request: Request, principal: Principal) -> Response:
        """GET /api/effects: the ledger, newest first; `?state=unknown` and `?before=ID`."""
        before = request.query_params.get("before")
        limit = headers.number(request.query_params.get("limit", "100"), "limit")
        found = await self._deps.verbs.effects(
            principal,
            headers.text_parameter(request, "state"),
            before=None if before is None else headers.parameter_id(before, "before"),
            limit=limit,
        )
        return answer({"effects": plain(found)})

    async def effect(self, request: Request, principal: Principal) -> Response:
        """GET /api/effects/{id}: one effect with its receipts and look-ups."""
        effect_id = headers.path_id(request, "effect_id", "effect")
        return answer(plain(await self._deps.verbs.effect(principal, effect_id)))

    async def settle(self, request: Request, principal: Principal) -> Response:
        """POST /api/effects/{id}/{verb}: look_up, confirm, disprove, abandon or cancel."""
        effect_id = headers.path_id(request, "effect_id", "effect")
        verb = str(request.path_params["verb"])
        if verb not in get_args(EffectVerb):
            raise DeedboxError("not_found", f"The verbs of an effect are {', '.join(get_args(EffectVerb))}.")
        body = await read_model(request, EffectBody, self._deps.limits.json_bytes, optional=True)
        done = await self._deps.verbs.effect_verb(
            principal, effect_id, cast("EffectVerb", verb), evidence=body.evidence, reason=body.reason, door=_DOOR
        )
        return answer(plain(done))

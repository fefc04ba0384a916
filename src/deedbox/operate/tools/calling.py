"""Calling a tool: accepted, committed, waited for a little, answered in one shape, and journalled whatever came of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import UUID

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.intake.documents import Parsed, check
from deedbox.intake.request import Accepted, Request
from deedbox.intake.submit import Intake
from deedbox.model.errors import DeedboxError, InvalidValueError
from deedbox.model.fingerprint import canonical_text, sha256
from deedbox.model.identity import Principal
from deedbox.model.tool_codes import of_error
from deedbox.operate.follow import Follow
from deedbox.operate.job_view import JobView, Outcome
from deedbox.operate.tools.catalogue import Catalogue
from deedbox.operate.tools.envelope import Envelope, Fault, Tool, refusal
from deedbox.operate.tools.hurry import or_now
from deedbox.operate.tools.job_page import shown
from deedbox.operate.tools.journal import Journal, Noted
from deedbox.operate.tools.keys import Keyed, checked_parent, count_refused, keyed
from deedbox.operate.tools.sentences import called, plain, said
from deedbox.operate.tools.telling import begun, told, told_outcome
from deedbox.operate.verbs import Verbs
from deedbox.operate.views import AWAY, Views
from deedbox.operate.waiting import reasons
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import StoreError
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

LONGEST_WAIT_S = 25.0
"""Nothing waits longer than this for a job, in seconds."""
WINDOW_S = 60.0
"""How long equal calls of one caller without a key are one, in seconds."""
_JOB_TOOL = "get_job"
_CANCEL_TOOL = "cancel_job"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a face took it in.

    `arguments` are JSON as it was sent; `parsed` is what they were read from, where the face has that. `key` is the caller's
    own. `source` is one of the job's sources (`http`, `mcp`, `n8n`, `job`, …). `wait_s` is how long to wait for the end, in
    seconds, at most `LONGEST_WAIT_S`. `parent_job_id` is the job within which it is called, `version` the contract version that
    the caller was shown, `window_s` how long equal calls without a key are one. `claimed_role` is a role that the caller names
    outside the arguments; it is journalled and never used.
    """

    action: str
    arguments: object
    key: str | None = None
    source: str = "http"
    wait_s: float = 5.0
    caller_run: str | None = None
    traceparent: str | None = None
    parent_job_id: str | None = None
    version: int | None = None
    window_s: float = WINDOW_S
    claimed_role: str | None = None
    parsed: Parsed | None = None


class Tools:
    """What an agent may call, over one store. No method raises but for a cancellation: failures are answers."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        actions: Mapping[str, Action],
        *,
        intake: Intake,
        views: Views,
        follow: Follow,
        verbs: Verbs,
        public_url: str,
    ) -> None:
        """`public_url` is where people and programs reach this installation: links are made from it."""
        self._pool = pool
        self._ids = ids
        self._actions = actions
        self._intake = intake
        self._views = views
        self._follow = follow
        self._verbs = verbs
        self._base_url = public_url.rstrip("/")
        self._catalogue = Catalogue(actions)
        self._journal = Journal(pool)

    def listed(self, who: Principal) -> tuple[Tool, ...]:
        """What somebody may call, sorted by name. Asks no database."""
        return self._catalogue.of(who)

    def described(self, action: str) -> Tool:
        """An action as it is offered, whoever asks. Raises KeyError for one that is not."""
        found = self._catalogue.action(action)
        if found is None:
            raise KeyError(action)
        return self._catalogue.tool(found)

    def wait_s(self, action: str, most: float) -> float:
        """How long a call waits for its end where its caller does not say, in seconds: at most `most`."""
        found = self._catalogue.action(action)
        return most if found is None or found.offer.wait_s is None else min(found.offer.wait_s, most)

    async def drain(self) -> None:
        """Wait until every call that was answered is in the journal; for a process that is about to stop."""
        await self._journal.drain()

    async def call(self, who: Principal, call: ToolCall, *, hurry: asyncio.Event | None = None) -> Envelope:
        """Accept a call and answer with what came of it within its wait; with `wait_s=0` right after the commit.

        `hurry` ends the wait early, for a server that is about to stop.
        """
        noted = Noted(self._ids.new(), time.monotonic())
        try:
            envelope = await self._answered(call.action, str(noted.call_id), self._call(who, call, noted, hurry), noted)
        except asyncio.CancelledError:
            # Whoever called has hung up. The job goes on, and so does the journal.
            self._journal.later(who, call, self._actions.get(call.action), noted, None)
            raise
        await self._journal.put(who, call, self._actions.get(call.action), noted, envelope)
        return envelope

    async def refuse(self, who: Principal, call: ToolCall, error: DeedboxError) -> Envelope:
        """The answer to a call that its face could not read; journalled as every other."""
        noted = Noted(self._ids.new(), time.monotonic(), validation="invalid")
        await self._intake.journal_refusal(self._request(who, call, noted), error)
        envelope = self._refused(call.action, str(noted.call_id), error, noted)
        await self._journal.put(who, call, self._actions.get(call.action), noted, envelope)
        return envelope

    async def outcome(self, who: Principal, job_id: UUID | str, *, wait_s: float = 0.0) -> Envelope:
        """The answer for a job that was started, as soon as it is over, a person decides, or the wait has passed."""
        return await self._answered(_JOB_TOOL, str(job_id)[:36], self._outcome(who, job_id, wait_s))

    async def job(self, who: Principal, job_id: UUID | str, *, after: int = 0, wait_s: float = 0.0) -> Envelope:
        """The same answer with `data` = progress, partial, events after a number, next_after, approval and result.

        Waits up to `wait_s` seconds for the first event after that number.
        """
        return await self._answered(_JOB_TOOL, str(job_id)[:36], self._job(who, job_id, after, wait_s))

    async def cancel(self, who: Principal, job_id: UUID | str, *, reason: str = "Canceled by the caller.") -> Envelope:
        """Cancel a job and answer with how it stands; one that cannot be canceled any more is NOT_CANCELED."""
        return await self._answered(_CANCEL_TOOL, str(job_id)[:36], self._cancel(who, job_id, reason))

    async def _answered(self, action: str, audit_id: str, answer: Awaitable[Envelope], noted: Noted | None = None) -> Envelope:
        """The answer, or the refusal that what was raised comes to."""
        try:
            return await answer
        except DeedboxError as error:
            return self._refused(action, audit_id, error, noted)
        except (StoreError, *AWAY) as error:
            telemetry.log("tools").warning("store_away", action=action[:100], error=type(error).__name__)
            return self._refused(action, audit_id, DeedboxError("unavailable", _AWAY, retry_after=1), noted)
        except Exception:  # noqa: BLE001 -- an agent gets an answer whatever it was; the log has the rest
            telemetry.log("tools").exception("tool_failed", action=action[:100], audit_id=audit_id)
            return self._refused(action, audit_id, DeedboxError("internal", _INSIDE), noted)

    def _refused(self, name: str, audit_id: str, error: DeedboxError, noted: Noted | None) -> Envelope:
        code = of_error(error.code)
        action = self._actions.get(name)
        faults = tuple(Fault(code, plain(problem.message), problem.pointer) for problem in error.problems)
        job_id = None if noted is None or noted.job_id is None else str(noted.job_id)
        return refusal(
            plain(name, "unknown")[:100],
            audit_id,
            code,
            said(plain(_sentence(name, code, error))),
            faults=faults,
            retry_after_s=error.retry_after,
            task_error=action is not None and action.offer.task_error,
            job_id=job_id,
        )

    async def _call(self, who: Principal, call: ToolCall, noted: Noted, hurry: asyncio.Event | None) -> Envelope:
        request = self._request(who, call, noted)
        try:
            action = self._offered(call)
            parsed = self._read(call)
            noted.input_sha256 = sha256(parsed.canonical)
            found = await self._keyed(who, call, action, noted)
        except DeedboxError as error:
            noted.validation = "invalid" if of_error(error.code) in {"INVALID_INPUT", "SECRET_IN_INPUT"} else None
            await self._intake.journal_refusal(request, error)
            raise
        try:
            accepted = await self._intake.submit(
                request._replace(key=found.key, otherwise=found.otherwise, parent=noted.parent, parsed=parsed)
            )
        except DeedboxError as error:
            noted.validation = "invalid" if of_error(error.code) in {"INVALID_INPUT", "SECRET_IN_INPUT"} else None
            if noted.parent is not None and not found.counted:
                await count_refused(self._pool, noted.parent, noted.budget)
            raise
        noted.validation, noted.job_id, noted.replayed = "valid", accepted.job_id, accepted.replayed
        return await self._waited(who, call, accepted, noted, hurry)

    def _request(self, who: Principal, call: ToolCall, noted: Noted) -> Request:
        return Request(
            principal=who,
            action=call.action,
            body=call.arguments,
            key=call.key,
            source=call.source,
            caller_run=call.caller_run or _trace_id(call, self._actions.get(call.action)),
            trace=call.traceparent,
            parsed=call.parsed,
            closed=True,
            call_id=noted.call_id,
        )

    def _offered(self, call: ToolCall) -> Action:
        action = self._catalogue.action(call.action)
        if action is None:
            raise DeedboxError("not_found", "There is no tool of this name.")
        if call.version is not None and call.version not in action.versions:
            said_version = (
                f"{called(action.name).capitalize()} has version {action.version}, not {call.version}: list the tools."
            )
            raise DeedboxError("version_mismatch", said_version)
        return action

    @staticmethod
    def _read(call: ToolCall) -> Parsed:
        if call.parsed is not None:
            return call.parsed
        try:
            check(call.arguments)
            return Parsed(call.arguments, *canonical_text(call.arguments))
        except InvalidValueError as error:
            raise DeedboxError("invalid_value", "An argument cannot be kept.", problems=(error.problem,)) from error

    async def _keyed(self, who: Principal, call: ToolCall, action: Action, noted: Noted) -> Keyed:
        if call.parent_job_id is not None:
            noted.parent = _id(call.parent_job_id, "parent job")
            parent = self._actions.get(await checked_parent(self._pool, who, noted.parent))
            noted.budget = 0 if parent is None else parent.offer.calls
        return await keyed(
            self._pool,
            who,
            action,
            key=call.key,
            parent=noted.parent,
            budget=noted.budget,
            input_sha256=noted.input_sha256 or b"",
            new=noted.call_id,
            window_s=call.window_s,
        )

    async def _waited(
        self, who: Principal, call: ToolCall, accepted: Accepted, noted: Noted, hurry: asyncio.Event | None
    ) -> Envelope:
        wait_s, job_id = _bounded(call.wait_s), accepted.job_id
        view: JobView | Outcome | None
        if wait_s <= 0 and not accepted.replayed and accepted.state == "queued":
            # Nothing has become of it yet that this process does not know.
            noted.begun, noted.key_sha256 = True, accepted.key_sha256
            return begun(self._actions[call.action], job_id, audit_id=str(noted.call_id))
        if wait_s > 0:
            fresh, stuck = not accepted.replayed, self._stuck(who, job_id)
            asked = asyncio.ensure_future(self._follow.outcome(who, job_id, wait_s, fresh=fresh, stuck=stuck))
            view = await or_now(asked, hurry, lambda: self._views.job(who, job_id))
        else:
            view = await self._views.job(who, job_id)
        if view is None:
            raise DeedboxError("not_found", "The job of this call is not yours to see.")
        return await self._told(who, view, str(noted.call_id))

    async def _told(self, who: Principal, view: JobView | Outcome, audit_id: str) -> Envelope:
        action, link = self._actions.get(view.action), f"{self._base_url}/api/jobs/{view.job_id}"
        if isinstance(view, Outcome):
            return told_outcome(view, action, audit_id=audit_id, link=link)
        off = await self._switched_off(who, view)
        return told(view, action, audit_id=audit_id, link=link, base_url=self._base_url, switched_off=off)

    async def _switched_off(self, who: Principal, view: JobView) -> bool:
        """Whether the switch holds what is left of a job that is being sent."""
        waiting = [effect for effect in view.effects if effect.state == "pending"]
        if view.state != "dispatching" or not waiting:
            return False
        async with autocommit(self._pool) as connection:
            found = await reasons(connection, who.tenant, waiting[0].effect_id)
        return any(reason["why"] == "switch" for reason in found)

    def _stuck(self, who: Principal, job_id: UUID) -> Callable[[], Awaitable[bool]]:
        async def held_by_the_switch() -> bool:
            view = await self._views.job(who, job_id)
            return view is not None and await self._switched_off(who, view)

        return held_by_the_switch

    async def _outcome(self, who: Principal, job_id: UUID | str, wait_s: float) -> Envelope:
        found = _id(job_id, "job")
        view = await self._follow.job(who, found, _bounded(wait_s), stuck=self._stuck(who, found))
        if view is None:
            raise DeedboxError("not_found", "There is no such job, or it is not yours.")
        return await self._told(who, view, str(view.job_id))

    async def _job(self, who: Principal, job_id: UUID | str, after: int, wait_s: float) -> Envelope:
        found = _id(job_id, "job")
        page = await self._follow.page(who, found, max(0, after), _bounded(wait_s))
        view = None if page is None else await self._views.job(who, found)
        if view is None or page is None:
            raise DeedboxError("not_found", "There is no such job, or it is not yours.")
        envelope = await self._told(who, view, str(view.job_id))
        action, link = self._actions.get(view.action), f"{self._base_url}/api/jobs/{view.job_id}"
        return replace(envelope, data=shown(view, page, envelope, action, after=after, link=link))

    async def _cancel(self, who: Principal, job_id: UUID | str, reason: str) -> Envelope:
        found = _id(job_id, "job")
        became = await self._verbs.cancel_job(who, found, reason, door="tool")
        envelope = await self._outcome(who, found, 0.0)
        if became == "cancel_requested" and envelope.status == "pending":
            return replace(envelope, human_message=said(f"{called(envelope.action).capitalize()} was told to stop."))
        return envelope


_AWAY = "The store cannot be reached just now; the same call is safe to send again."
_INSIDE = "Something went wrong inside; the people who look after it can find it by the audit id."


def _sentence(name: str, code: str, error: DeedboxError) -> str:
    """A refusal as it is said: for arguments, every field by name and what to do about it."""
    if code == "INVALID_INPUT" and error.problems:
        fields = "; ".join(
            f"{problem.pointer.lstrip('/') or 'the arguments'}: {problem.message}" for problem in error.problems[:5]
        )
        return f"The arguments of {called(name)} do not fit: {fields}."
    return error.detail


def _id(text: UUID | str, what: str) -> UUID:
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except ValueError:
        raise DeedboxError("not_found", f"There is no such {what}, or it is not yours.") from None


def _bounded(wait_s: float) -> float:
    return min(max(wait_s, 0.0), LONGEST_WAIT_S) if wait_s == wait_s else 0.0  # noqa: PLR0124 -- NaN is not itself


def _trace_id(call: ToolCall, action: Action | None) -> str | None:
    """The caller's own run from the arguments, where the action's schema has a place for it."""
    if action is None or "trace_id" not in action.input_model.model_fields or not isinstance(call.arguments, dict):
        return None
    found = cast("dict[str, Any]", call.arguments).get("trace_id")
    return found if isinstance(found, str) and 0 < len(found) <= 200 and found.isprintable() and found.isascii() else None  # noqa: PLR2004 -- as the header

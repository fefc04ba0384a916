"""Accepting a call: one job per key, stored before it is answered.

Concurrent calls of one process share a transaction (store.batch). Equal keys in one flush collapse in memory; the claim on
the key in the database decides between processes. Whoever lost the claim reads what won, in a second statement, and replays.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel, ValidationError

from deedbox import telemetry
from deedbox.extend.action import Action
from deedbox.intake.documents import input_problems
from deedbox.intake.gathered import BREATH, CHUNKS, MANY, Gathered
from deedbox.intake.guard import check_upload, guarded
from deedbox.intake.keys import choose_key, data_subject
from deedbox.intake.referenced import not_a_document, with_documents
from deedbox.intake.refusals import Refusals
from deedbox.intake.request import Accepted, Request, Upload
from deedbox.intake.terms import held_for, priority, through
from deedbox.model.backoff import seconds
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import hashed_text, key_hash, sha256
from deedbox.model.identity import Principal, require_scope
from deedbox.store import accept as store
from deedbox.store import rounds
from deedbox.store.audit import append, entry_by
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE
from deedbox.store.pool import Pool
from deedbox.store.rows import encode
from deedbox.store.tell import Teller
from deedbox.store.transaction import autocommit, transaction

# The same few callers come again and again.
_uuid = lru_cache(maxsize=1024)(UUID)
_DERIVED_EXPIRY_S = 400 * 86400.0
_EXPLICIT = ("header", "field", "key_from")


class Intake:
    """The one path by which jobs are made, for every face."""

    def __init__(
        self,
        pool: Pool,
        ids: IdSource,
        actions: Mapping[str, Action],
        *,
        public_url: str,
        max_waiting: int,
        callbacks: Collection[str] = (),
        scan_uploads: bool = False,
    ) -> None:
        """`max_waiting` is how many jobs may wait per action and tenant before more are refused; `callbacks` are the receivers.

        `scan_uploads` says that documents which hold text are looked at for secrets as well. Raises ValueError for an action
        whose own receiver is none of them.
        """
        for action in actions.values():
            if action.callback is not None and action.callback not in callbacks:
                raise ValueError(f"{action.name}: no receiver of callbacks is called {action.callback!r}")
        self._callbacks = frozenset(callbacks)
        self._pool = pool
        self._teller = Teller(pool)
        self._ids = ids
        self._actions = actions
        self._public_url = public_url.rstrip("/")
        self._max_waiting = max_waiting
        self._accepted = {name: telemetry.ACCEPTED.labels(name) for name in actions}
        self._replayed = {name: telemetry.REPLAYED.labels(name) for name in actions}
        self._roles: dict[tuple[str, frozenset[str]], str] = {}
        self._lanes: dict[tuple[str, str, str], int] = {}
        self._counted: dict[int, tuple[float, int]] = {}
        self._gathered = Gathered(pool, ids, self._teller)
        self._refusals = Refusals(pool, ids, self._gathered)
        self._scan_uploads = scan_uploads

    async def drain(self) -> None:
        """Wait until what was accepted has been told to the workers; for a process that is about to close its connections."""
        await self._gathered.drain()
        await self._teller.drain()

    async def submit(self, request: Request) -> Accepted:
        """Store the job and return it after commit, or return the job that the key already has.

        Raises DeedboxError: not_found, permission_denied, invalid_input, secret_in_input, key_required, key_invalid,
        key_reused, pruned, erased, too_many_waiting, unavailable. Whatever is refused stores no job and binds no key, but is
        in the journal of calls.
        """
        return await self._submit(request, None)

    async def submit_many(self, requests: Sequence[Request]) -> list[Accepted | DeedboxError]:
        """Submit each of these as `submit` does, hundreds in one commit; the answers come in the order of the requests.

        One that is refused has its error in its place. Any number may be given; other callers go on in between.
        """
        answers: list[Accepted | DeedboxError] = []
        under_way: deque[asyncio.Task[list[Accepted | DeedboxError]]] = deque()
        try:
            for start in range(0, len(requests), MANY):
                chunk = requests[start : start + MANY]
                # Prepared in order, so that of two with one key the first makes the job; while some are stored, the next are.
                jobs: list[store.NewJob | None] = []
                for number, request in enumerate(chunk):
                    if number % BREATH == 0:
                        # For what is on its way to the server, and for all others.
                        await asyncio.sleep(0)
                    jobs.append(await self._prepared(request))
                under_way.append(asyncio.create_task(self._chunk(chunk, jobs)))
                await asyncio.sleep(0)
                if len(under_way) > CHUNKS:
                    answers += await under_way.popleft()
            while under_way:
                answers += await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
        return answers

    async def _chunk(self, requests: Sequence[Request], jobs: Sequence[store.NewJob | None]) -> list[Accepted | DeedboxError]:
        new = await self._gathered.store_many([job for job in jobs if job is not None])
        # What was not prepared or not stored says by itself why not; all of those at once, for one of them may have to wait.
        rest = [pair for pair in zip(requests, jobs, strict=True) if pair[1] is None or pair[1].job_id not in new]
        others = iter(await asyncio.gather(*(self._answer(*pair) for pair in rest)))
        answers: list[Accepted | DeedboxError] = []
        for request, job in zip(requests, jobs, strict=True):
            if job is None or job.job_id not in new:
                answers.append(next(others))
            else:
                self._accepted[request.action].inc()
                answers.append(Accepted(job.job_id, "queued", replayed=False))
        return answers

    async def _answer(self, request: Request, job: store.NewJob | None) -> Accepted | DeedboxError:
        try:
            return await self._submit(request, job)
        except DeedboxError as error:
            return error

    async def _prepared(self, request: Request) -> store.NewJob | None:
        try:
            return await self._prepare(request)
        except (DeedboxError, *UNREACHABLE):
            return None

    async def _submit(self, request: Request, job: store.NewJob | None) -> Accepted:
        try:
            answer = await self._put(job or await self._prepare(request), request)
        except DeedboxError as error:
            await self.journal_refusal(request, error)
            raise
        except UNREACHABLE as error:
            raise DeedboxError("unavailable", "The store cannot be reached; send the same key again.", retry_after=1) from error
        (self._replayed if answer.replayed else self._accepted)[request.action].inc()
        return answer

    async def _prepare(self, request: Request) -> store.NewJob:
        action = self._actions.get(request.action)
        if action is None:
            raise DeedboxError("not_found", f"There is no action {request.action!r}.")
        principal = request.principal
        role = self._role(action, principal)
        if action.document_fields:
            request = await with_documents(self._pool, action, request)
        job_id = self._ids.new()
        documents, stored_input, input_json, payload_sha256, given = self._input(action, request)
        key, source = choose_key(
            action,
            header=request.key,
            form=request.form_key,
            body=stored_input,
            given=given,
            payload_sha256=payload_sha256,
            job_id=job_id,
            otherwise=request.otherwise,
        )
        if request.source == "job":
            source = "slot"
        lane_id = await self._lane(action, principal.tenant)
        await self._room(lane_id, action, principal.tenant)
        return store.NewJob(
            job_id=job_id,
            tenant=principal.tenant,
            action=action.name,
            version=action.version,
            key=key,
            key_sha256=key_hash(key),
            key_source=source,
            payload_sha256=payload_sha256,
            subject=_uuid(principal.principal_id),
            role=role,
            source=request.source,
            input_json=input_json,
            lane_id=lane_id,
            attempts=action.retry.attempts,
            priority=priority(request.priority, action),
            run_at=request.run_at,
            deadline=request.deadline,
            deadline_s=action.deadline_s,
            replaces=request.replaces,
            parent_job_id=request.parent,
            through=through(principal),
            caller_run=request.caller_run,
            trace=request.trace,
            callback=self._callback(request.callback, action),
            expires_s=_DERIVED_EXPIRY_S if source in ("content", "new") else None,
            documents=documents,
            held_for=held_for(action),
            data_subject=data_subject(action, stored_input, given),
        )

    def _callback(self, wanted: str | None, action: Action) -> str | None:
        if wanted is None:
            return action.callback
        if wanted not in self._callbacks:
            # A URL is none of them: where we call is for settings to say.
            problem = Problem("/callback", "callback", "is not the name of a registered receiver")
            raise DeedboxError("invalid_input", "A callback goes to a registered receiver.", problems=(problem,))
        return wanted

    def _role(self, action: Action, principal: Principal) -> str:
        may = principal.may("submit") or (action.reads_only and principal.may("read"))
        known = self._roles.get((action.name, principal.roles))
        if known is not None and may:
            return known
        held = sorted(principal.roles & action.roles)
        if not held or not may:
            require_scope(principal, frozenset({"submit", "read"} if action.reads_only else {"submit"}))
            wanted = ", ".join(sorted(action.roles))
            raise DeedboxError("permission_denied", f"Running {action.name} needs one of these roles: {wanted}.")
        self._roles[action.name, principal.roles] = held[0]
        return held[0]

    def _input(
        self, action: Action, request: Request
    ) -> tuple[tuple[store.StoredDocument, ...], dict[str, Any], str, bytes, BaseModel]:
        """The documents, the input as stored, its text, its hash (documents by name and sha256), and the input validated."""
        sent: Any = request.body
        if not isinstance(sent, dict):
            raise DeedboxError(
                "invalid_input", "The input is an object.", problems=(Problem("", "object", "must be an object"),)
            )
        body, parsed = guarded(action, request, dict(cast("dict[str, Any]", sent)))
        fields = action.document_fields
        for name in fields:
            if body.get(name) is not None:
                raise not_a_document(name)
        hashed = dict(body)
        documents: list[store.StoredDocument] = []
        for name, uploads in request.uploads.items():
            if name not in fields:
                problem = Problem(f"/{name}", "unexpected_upload", "the action takes no document of this name")
                raise DeedboxError("invalid_input", f"There is no document field {name!r}.", problems=(problem,))
            if len(uploads) > 1 and not fields[name]:
                problem = Problem(f"/{name}", "one_upload", "takes one document")
                raise DeedboxError("invalid_input", f"{name} takes one document.", problems=(problem,))
            kept = [self._document(name, upload) for upload in uploads]
            documents += kept
            links = [self._link(document) for document in kept]
            digests = [{"name": document.name, "sha256": document.sha256.hex()} for document in kept]
            body[name] = links if fields[name] else links[0]
            hashed[name] = digests if fields[name] else digests[0]
        try:
            given = action.input_model.model_validate(body, extra="forbid" if request.closed else None)
        except ValidationError as error:
            problems = input_problems(error.errors(include_url=False, include_input=False, include_context=False))
            names = ", ".join(problem.pointer or "/" for problem in problems[:5])
            raise DeedboxError(
                "invalid_input", f"The input does not match the schema at {names}.", problems=problems
            ) from error
        # With uploads the hash is over more than what was read.
        if request.uploads or parsed is None:
            payload_sha256, text = hashed_text(hashed)
            return tuple(documents), body, encode(body) if documents else text, payload_sha256, given
        return (), body, parsed.text, sha256(parsed.canonical), given

    def _document(self, name: str, upload: Upload) -> store.StoredDocument:
        if not upload.content:
            problem = Problem(f"/{name}", "empty", "the file has no bytes")
            raise DeedboxError("empty_document", f"The document {upload.name!r} is empty.", problems=(problem,))
        if self._scan_uploads:
            check_upload(name, upload)
        return store.StoredDocument(self._ids.new(), upload.name, upload.media_type, sha256(upload.content), upload.content)

    def _link(self, document: store.StoredDocument) -> dict[str, Any]:
        return {
            "document_id": str(document.document_id),
            "name": document.name,
            "media_type": document.media_type,
            "size": len(document.content),
            "sha256": document.sha256.hex(),
            "url": f"{self._public_url}/api/documents/{document.document_id}",
        }

    async def _lane(self, action: Action, tenant: str) -> int:
        identity = (action.queue, action.name, tenant)
        lane_id = self._lanes.get(identity)
        if lane_id is None:
            async with autocommit(self._pool) as connection:
                lane_id = self._lanes[identity] = await store.lane(connection, *identity)
        return lane_id

    async def _room(self, lane_id: int, action: Action, tenant: str) -> None:
        """Refuse beyond the limit; the count is taken at most once a second, so the limit is soft by a second's intake."""
        now = time.monotonic()
        at, count = self._counted.get(lane_id, (-1e9, 0))
        if now - at > 1:
            self._counted[lane_id] = (now, count)
            async with autocommit(self._pool) as connection:
                count = await store.waiting(connection, lane_id, self._max_waiting + 1)
                if action.hold_input:
                    # What waits for a yes waits as well.
                    count += await store.held(connection, tenant, action.name, self._max_waiting + 1)
            self._counted[lane_id] = (now, count)
        if count > self._max_waiting:
            raise DeedboxError("too_many_waiting", f"Too many jobs of {action.name} wait already.", retry_after=5)

    async def _put(self, job: store.NewJob, request: Request) -> Accepted:
        for _ in range(3):
            if await self._gathered.store(job, request.entry):
                return Accepted(job.job_id, "queued" if job.held_for is None else "awaiting_human", replayed=False)
            bound = await self._gathered.bound(job)
            if bound is None:
                continue
            if bound.job_id == job.job_id:
                # The commit whose answer was lost had stored it.
                return Accepted(job.job_id, bound.state or "queued", replayed=False)
            answer = await self._replay(job, bound, request)
            if bound.state == "failed_retryable" and job.key_source in _EXPLICIT:
                return await self._take_up(job, answer, request.principal)
            return answer
        raise DeedboxError("unavailable", "The key changed hands repeatedly; try again.", retry_after=1)

    async def _replay(self, job: store.NewJob, bound: store.Bound, request: Request) -> Accepted:
        principal = request.principal
        if bound.erased:
            raise DeedboxError("erased", "The job of this key was erased for its person; its key stays taken.")
        if bound.pruned or bound.state is None:
            raise DeedboxError("pruned", "The job of this key has been removed; its key stays taken.")
        mine = bound.subject == job.subject or (principal.kind == "person" and principal.may("read"))
        if not mine or bound.payload_sha256 != job.payload_sha256:
            raise DeedboxError("key_reused", "This key is bound to another payload; nothing was started.")
        call = store.Call(
            call_id=self._ids.new(),
            tenant=job.tenant,
            source=job.source,
            status="replayed",
            subject=job.subject,
            role=job.role,
            action=job.action,
            job_id=bound.job_id,
            key_sha256=job.key_sha256,
            input_sha256=job.payload_sha256,
            trace=job.trace,
            caller_run=job.caller_run,
            through=job.through,
        )
        if request.call_id is None:
            await self._gathered.journal(call)
        return Accepted(bound.job_id, bound.state, replayed=True)

    async def _take_up(self, job: store.NewJob, answer: Accepted, principal: Principal) -> Accepted:
        """The caller still wants what has used up its attempts: a new round, where it is time and has not been often enough."""
        action = self._actions[job.action]
        wait_s = max(rounds.SHORTEST_WAIT_S, seconds(action.retry.cap, name="cap"))
        async with transaction(self._pool) as connection:
            begun = await rounds.take_up(
                connection,
                answer.job_id,
                event_id=self._ids.new(),
                attempts=action.retry.attempts,
                by="redelivery",
                redelivery_wait_s=wait_s,
            )
            if begun is not None:
                detail = {"round": begun, "by": "redelivery"}
                entry = entry_by(principal, job.source, "take_up", ("job", str(answer.job_id)), detail=detail)
                await append(connection, entry)
        if begun is None:
            return answer
        self._teller.soon(jobs=[answer.job_id], queue=True)
        return Accepted(answer.job_id, "queued", replayed=True, taken_up=True)

    async def journal_refusal(self, request: Request, error: DeedboxError) -> None:
        """Keep a refused call in the journal and in the audit; never raises (deedbox.intake.refusals)."""
        await self._refusals.journal(request, error)

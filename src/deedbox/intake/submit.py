"""Accepting a call: one job per key, stored before it is answered.

Concurrent calls of one process share a transaction (store.batch). Equal keys in one flush collapse in memory; the claim on
the key in the database decides between processes. Whoever lost the claim reads what won, in a second statement, and replays.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, cast

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
from deedbox.intake.terms import Desk
from deedbox.model.backoff import seconds
from deedbox.model.errors import DeedboxError, Problem
from deedbox.model.fingerprint import jcs, key_hash, sha256
from deedbox.model.identity import Principal
from deedbox.store import accept as store
from deedbox.store import rounds
from deedbox.store.audit import append, entry_by
from deedbox.store.ids import IdSource
from deedbox.store.pg_errors import UNREACHABLE
from deedbox.store.pool import Pool
from deedbox.store.rows import encode
from deedbox.store.tell import Teller
from deedbox.store.transaction import transaction

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
        self._pool = pool
        self._teller = Teller(pool)
        self._ids = ids
        self._actions = actions
        self._public_url = public_url.rstrip("/")
        self._desk = Desk(pool, actions, callbacks, max_waiting=max_waiting)
        self._replayed = {name: telemetry.REPLAYED.labels(name) for name in actions}
        self._gathered = Gathered(pool, ids, self._teller, actions)
        self._refusals = Refusals(pool, ids, self._gathered)
        self._scan_uploads = scan_uploads

    async def drain(self) -> None:
        """Wait until what was accepted has been told to the workers; for a process that is about to close its connections."""
        await self._gathered.drain()
        await self._teller.drain()

    def submit(self, request: Request) -> Coroutine[Any, Any, Accepted]:
        """Store the job and return it after commit, or return the job that the key already has.

        Raises DeedboxError: not_found, permission_denied, invalid_input, secret_in_input, key_required, key_invalid,
        key_reused, pruned, erased, too_many_waiting, unavailable. Whatever is refused stores no job and binds no key, but is
        in the journal of calls.
        """
        return self._submit(request, None)

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
        stored = iter(await self._gathered.store_many([job for job in jobs if job is not None]))
        pairs = [*zip(requests, jobs, strict=True)]
        news = [job is not None and next(stored) for job in jobs]
        # What was not prepared or not stored says by itself why not; all of those at once, for one of them may have to wait.
        rest = [pair for pair, new in zip(pairs, news, strict=True) if not new]
        others = iter(await asyncio.gather(*(self._answer(*pair) for pair in rest)))
        return [
            Accepted(job.job_id, "queued", replayed=False) if new and job is not None else next(others)
            for (_, job), new in zip(pairs, news, strict=True)
        ]

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
        if answer.replayed:
            self._replayed[request.action].inc()
        return answer

    async def _prepare(self, request: Request) -> store.NewJob:
        action = self._actions.get(request.action)
        if action is None:
            raise DeedboxError("not_found", f"There is no action {request.action!r}.")
        role = self._desk.role(action, request.principal)
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
        return store.NewJob(
            await self._desk.terms(action, request, role, source),
            job_id,
            key,
            key_hash(key),
            payload_sha256,
            input_json,
            request.caller_run,
            request.trace,
            request.run_at,
            request.deadline,
            request.replaces,
            request.parent,
            None if action.data_subject is None else data_subject(action, stored_input, given),
            documents,
        )

    def _input(
        self, action: Action, request: Request
    ) -> tuple[tuple[store.StoredDocument, ...], dict[str, Any], str, bytes, BaseModel]:
        """The documents, the input as stored, its text, its hash (documents by name and sha256), and the input validated."""
        sent: Any = request.body
        if not isinstance(sent, dict):
            raise DeedboxError(
                "invalid_input", "The input is an object.", problems=(Problem("", "object", "must be an object"),)
            )
        body, text, canonical = guarded(action, request, dict(cast("dict[str, Any]", sent)))
        for name in action.document_fields:
            if body.get(name) is not None:
                raise not_a_document(name)
        if request.uploads:
            # The hash is over their digests, what is stored holds links to them.
            documents, links, digests = self._uploads(action, request)
            canonical, text = jcs({**body, **digests}), encode(body := {**body, **links})
        else:
            documents = ()
        try:
            given = action.input_model.model_validate(body, extra="forbid" if request.closed else None)
        except ValidationError as error:
            problems = input_problems(error.errors(include_url=False, include_input=False, include_context=False))
            names = ", ".join(problem.pointer or "/" for problem in problems[:5])
            raise DeedboxError(
                "invalid_input", f"The input does not match the schema at {names}.", problems=problems
            ) from error
        return documents, body, text, sha256(canonical), given

    def _uploads(
        self, action: Action, request: Request
    ) -> tuple[tuple[store.StoredDocument, ...], dict[str, Any], dict[str, Any]]:
        """The documents of a call, and by field what the input says of them: the links that are stored, what is hashed."""
        fields = action.document_fields
        documents: list[store.StoredDocument] = []
        linked: dict[str, Any] = {}
        hashed: dict[str, Any] = {}
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
            linked[name] = links if fields[name] else links[0]
            hashed[name] = digests if fields[name] else digests[0]
        return tuple(documents), linked, hashed

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

    async def _put(self, job: store.NewJob, request: Request) -> Accepted:
        for _ in range(3):
            if await self._gathered.store(job, request.entry):
                state = "queued" if job.terms.held_for is None else "awaiting_human"
                return Accepted(job.job_id, state, replayed=False, key_sha256=job.key_sha256)
            bound = await self._gathered.bound(job)
            if bound is None:
                continue
            if bound.job_id == job.job_id:
                # The commit whose answer was lost had stored it.
                self._gathered.count([job])
                return Accepted(job.job_id, bound.state or "queued", replayed=False)
            answer = await self._replay(job, bound, request)
            if bound.state == "failed_retryable" and job.terms.key_source in _EXPLICIT:
                return await self._take_up(job, answer, request.principal)
            return answer
        raise DeedboxError("unavailable", "The key changed hands repeatedly; try again.", retry_after=1)

    async def _replay(self, job: store.NewJob, bound: store.Bound, request: Request) -> Accepted:
        principal = request.principal
        if bound.erased:
            raise DeedboxError("erased", "The job of this key was erased for its person; its key stays taken.")
        if bound.pruned or bound.state is None:
            raise DeedboxError("pruned", "The job of this key has been removed; its key stays taken.")
        terms = job.terms
        mine = bound.subject == terms.subject or (principal.kind == "person" and principal.may("read"))
        if not mine or bound.payload_sha256 != job.payload_sha256:
            raise DeedboxError("key_reused", "This key is bound to another payload; nothing was started.")
        call = store.Call(
            call_id=self._ids.new(),
            tenant=terms.tenant,
            source=terms.source,
            status="replayed",
            subject=terms.subject,
            role=terms.role,
            action=terms.action,
            job_id=bound.job_id,
            key_sha256=job.key_sha256,
            input_sha256=job.payload_sha256,
            trace=job.trace,
            caller_run=job.caller_run,
            through=terms.through,
        )
        if request.call_id is None:
            await self._gathered.journal(call)
        return Accepted(bound.job_id, bound.state, replayed=True)

    async def _take_up(self, job: store.NewJob, answer: Accepted, principal: Principal) -> Accepted:
        """The caller still wants what has used up its attempts: a new round, where it is time and has not been often enough."""
        action = self._actions[job.terms.action]
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
                entry = entry_by(principal, job.terms.source, "take_up", ("job", str(answer.job_id)), detail=detail)
                await append(connection, entry)
        if begun is None:
            return answer
        self._teller.soon(jobs=[answer.job_id], queue=True)
        return Accepted(answer.job_id, "queued", replayed=True, taken_up=True)

    async def journal_refusal(self, request: Request, error: DeedboxError) -> None:
        """Keep a refused call in the journal and in the audit; never raises (deedbox.intake.refusals)."""
        await self._refusals.journal(request, error)

"""Settling outcomes in batches: one transaction for many attempts, each under its own fence."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from prometheus_client import Counter

from deedbox import telemetry
from deedbox.extend.agents import TOOL_PENDING
from deedbox.gate.admit import Proposed, admit
from deedbox.gate.deciders import Deciders, alarm
from deedbox.gate.judge import Gate, judge, sensitive_input
from deedbox.gate.weigh import Weighed, weigh
from deedbox.model.values import short_message
from deedbox.store import alert, queue
from deedbox.store.batch import Gatherer
from deedbox.store.ids import IdSource
from deedbox.store.pool import Connection, Pool
from deedbox.store.rows import encode
from deedbox.store.tell import Teller
from deedbox.store.transaction import transaction
from deedbox.worker.by_rules import asked
from deedbox.worker.execute import Outcome

LOST = "lease_lost"
STOPPED = "worker_stopped"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The move an outcome makes, and what it says about itself."""

    move: str
    event_type: str
    event: dict[str, Any]
    state: str
    ends: bool
    wait_s: float | None = None
    failure_class: str | None = None
    code: str | None = None
    message: str | None = None
    gate: Gate | None = None
    alarm: str | None = None
    """The cause under which a person is told."""


@lru_cache(maxsize=1024)
def _counter(action: str, move: str) -> Counter:
    return telemetry.SETTLED.labels(action, move)


class Settler:
    """Applies outcomes. `put` returns the move that was made once it is committed, or `lease_lost`."""

    def __init__(self, pool: Pool, ids: IdSource, teller: Teller, *, worker: str, build: str) -> None:
        """`worker` and `build` are journalled with each attempt."""
        self._teller = teller
        self._pool = pool
        self._wire = pool.wire("settle")
        self._ids = ids
        self._worker = worker
        self._build = build
        self._gather = Gatherer(self._flush, self._single, most=500)
        self._completions = Gatherer(self._complete, self._complete_one, most=500)
        self._deciders = Deciders()

    async def put(self, outcome: Outcome) -> str:
        """Wait for the commit and return the move's name, or `lease_lost` where the attempt was no longer current."""
        if outcome.completes and await self._completions.put(outcome):
            move = "complete"
        else:
            move = await self._gather.put(outcome)
        _counter(outcome.action.name, move).inc()
        return move

    @property
    def busy(self) -> bool:
        """Whether outcomes are being settled."""
        return self._completions.busy or self._gather.busy

    async def drain(self) -> None:
        """Wait until every outcome handed over has been settled."""
        await self._completions.drain()
        await self._gather.drain()

    async def _complete(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """The plain way for most: one statement, one commit. False where the attempt was not found to be current."""
        done = [
            queue.Completed(
                outcome.held.fence, outcome.output, event_id, _completed_json(outcome.action.title), outcome.journal.kept()
            )
            for outcome, event_id in zip(outcomes, self._ids.many_bytes(len(outcomes)), strict=True)
        ]
        ended = await queue.complete_attempts(self._wire, done, worker=self._worker, build=self._build)
        self._teller.soon(jobs=[item.held[0] for item, is_ended in zip(done, ended, strict=True) if is_ended])
        return ended

    async def _complete_one(self, outcome: Outcome) -> bool:
        return (await self._complete([outcome]))[0]

    async def _single(self, outcome: Outcome) -> str:
        return (await self._flush([outcome]))[0]

    async def _flush(self, outcomes: Sequence[Outcome]) -> list[str]:
        ruled = await asked(self._pool, outcomes)
        let_out = False
        async with transaction(self._pool) as connection:
            locked = await queue.lock_attempts(connection, [outcome.held.fence for outcome in outcomes])
            missing = [outcome.held.fence for outcome in outcomes if outcome.held.claimed.attempt_id not in locked]
            # An answer that was lost after the commit brings an outcome here again: it was settled, and is not stale.
            settled = await queue.settled(connection, missing) if missing else {}
            live = [one for one in ruled.values() if one.attempt_id in locked and not locked[one.attempt_id].cancel_requested]
            weighed = await weigh(connection, live) if live else {}
            endings: list[queue.Ending] = []
            movings: list[queue.Moving] = []
            rows: list[queue.AttemptRow] = []
            moves: list[str] = []
            alerts: list[alert.Alert] = []
            for outcome in outcomes:
                attempt_id = outcome.held.claimed.attempt_id
                row = locked.get(attempt_id)
                if row is None:
                    moves.append(settled.get(attempt_id, LOST))
                    if attempt_id not in settled:
                        rows.append(_attempt_row(outcome, None, LOST))
                    continue
                found = weighed.get(attempt_id)
                verdict = decide_move(outcome, row, found)
                event = verdict.event
                if verdict.gate is not None:
                    event = event | await self._admit(connection, outcome, verdict.gate, found)
                    let_out = let_out or (found is not None and any(group.lets_out for group in found.groups))
                self._place(row.job_id, outcome, verdict, event, endings, movings)
                rows.append(_attempt_row(outcome, row, verdict.move, verdict))
                moves.append(verdict.move)
                if verdict.alarm is not None:
                    alerts.append(alert.Alert(self._ids.new(), row.job_id, verdict.alarm, verdict.message or ""))
            if endings:
                await queue.end_attempts(connection, endings)
            if movings:
                await queue.move_attempts(connection, movings)
            if rows:
                await queue.journal_attempts(connection, rows, worker=self._worker, build=self._build)
            if alerts:
                await alert.open_alerts(connection, alerts)
        self._teller.soon(jobs=[row.job_id for row in locked.values()], outbox=let_out)
        return moves

    async def _admit(self, connection: Connection, outcome: Outcome, gate: Gate, weighed: Weighed | None) -> dict[str, Any]:
        claimed = outcome.held.claimed
        proposed = Proposed(
            job_id=claimed.job_id,
            attempt_id=claimed.attempt_id,
            tenant=claimed.tenant,
            action=outcome.action,
            version=claimed.version,
            output_json=None if outcome.output is None else json.dumps(outcome.output, ensure_ascii=False),
            plans=outcome.plans,
            abstained=outcome.abstained,
            facts={
                "validation": outcome.journal.validation,
                "repairs": outcome.journal.repairs,
                "models": outcome.journal.models,
                "sensitive": sensitive_input(outcome.action, claimed.input_json),
            },
        )
        groups = None if weighed is None else weighed.groups
        approvals = await admit(connection, self._ids, proposed, outcome=gate, verdicts=groups)
        if approvals:
            missing = await self._deciders.missing(
                connection,
                claimed.tenant,
                outcome.action.name,
                audience=outcome.action.approvers,
                quorum=outcome.action.policy.quorum,
            )
            if missing is not None:
                await alarm(connection, alert_id=self._ids.new(), job_id=claimed.job_id, message=missing)
        return {"approvals": [str(approval) for approval in approvals]} if approvals or groups is None else {}

    def _place(
        self,
        job_id: UUID,
        outcome: Outcome,
        verdict: _Verdict,
        event: dict[str, Any],
        endings: list[queue.Ending],
        movings: list[queue.Moving],
    ) -> None:
        event_id = self._ids.new()
        if not verdict.ends:
            waited = verdict.code == TOOL_PENDING
            movings.append(
                queue.Moving(job_id, verdict.state, verdict.event_type, event_id, event, verdict.wait_s, waited=waited)
            )
            return
        endings.append(
            queue.Ending(
                job_id,
                verdict.state,
                verdict.event_type,
                event_id,
                event,
                output=outcome.output if verdict.state == "completed" else None,
                failure_class=verdict.failure_class,
                code=verdict.code,
                message=verdict.message,
            )
        )


def decide_move(outcome: Outcome, row: queue.Locked, weighed: Weighed | None = None) -> _Verdict:
    """The one place where an outcome turns into a move of the job; `weighed` is what became of it where rules decide."""
    if outcome.failure is None:
        return _decide_proposal(outcome, row, weighed)
    failure = outcome.failure
    if row.cancel_requested or failure.failure_class == "canceled":
        return _canceled()
    message = short_message(failure.message)
    decision = outcome.decision
    if decision.job != "back_off" and failure.code != TOOL_PENDING:
        alarm = failure.failure_class if decision.alert else None
        return _failed("fail", failure.failure_class, failure.code, message, alarm=alarm)
    # A deploy does not use up the last attempt, and neither does waiting for a person: both are given back.
    if row.attempt >= row.attempts_allowed and failure.code not in {STOPPED, TOOL_PENDING}:
        event = {"code": failure.code, "class": failure.failure_class, "message": message, "retryable": True}
        return _Verdict(
            "exhaust",
            "job.failed",
            event,
            "failed_retryable",
            ends=False,
            failure_class=failure.failure_class,
            code=failure.code,
            message=message,
            alarm="exhausted",
        )
    wait = outcome.wait_s
    if wait is None:
        wait = outcome.action.retry.delay(row.attempt, retry_after=failure.retry_after)
    event = {
        "attempt": row.attempt,
        "class": failure.failure_class,
        "code": failure.code,
        "message": message,
        "next_attempt_in_ms": round(wait * 1000),
    }
    return _Verdict("back_off", "job.retrying", event, "queued", False, wait, failure.failure_class, failure.code, message)


def _decide_proposal(outcome: Outcome, row: queue.Locked, weighed: Weighed | None) -> _Verdict:
    gate = judge(outcome.action, outcome.plans, outcome.abstained) if weighed is None else weighed.gate
    if gate == "complete":
        return _Verdict("complete", "job.completed", _completed(outcome.action.title), "completed", ends=True)
    if row.cancel_requested:
        return _canceled()
    if gate == "hold":
        return _Verdict("hold", "job.awaiting_human", {"effects": len(outcome.plans)}, "awaiting_human", ends=False, gate=gate)
    if gate == "authorize":
        return _Verdict("authorize", "job.dispatching", {}, "dispatching", ends=False, gate=gate)
    if gate == "deny":
        groups = () if weighed is None else weighed.groups
        by = next((f" ({group.rule})" for group in groups if group.decision == "deny"), "")
        return _failed("fail", "denied", "policy_denied", f"The policy does not let this action act{by}.", gate=gate)
    return _failed("fail", "rejected_output", "abstained", outcome.abstained or "The action abstained.")


def _completed(title: str) -> dict[str, Any]:
    return {"summary": f"{title}: done."}


@lru_cache(maxsize=1024)
def _completed_json(title: str) -> str:
    return encode(_completed(title))


def _canceled() -> _Verdict:
    message = "The job was canceled while it ran."
    return _Verdict("cancel", "job.canceled", {"code": "canceled"}, "canceled", True, None, "canceled", "canceled", message)


def _failed(
    move: str, failure_class: str, code: str, message: str, *, gate: Gate | None = None, alarm: str | None = None
) -> _Verdict:
    event = {"code": code, "class": failure_class, "message": message, "retryable": False}
    return _Verdict(move, "job.failed", event, "failed_terminal", True, None, failure_class, code, message, gate, alarm)


def _attempt_row(outcome: Outcome, row: queue.Locked | None, move: str, verdict: _Verdict | None = None) -> queue.AttemptRow:
    claimed = outcome.held.claimed
    return queue.AttemptRow(
        job_id=claimed.job_id,
        attempt_id=claimed.attempt_id,
        report="ended" if row else "stale",
        attempt=claimed.attempt,
        round=claimed.round,
        move=move,
        started_at=row.started_at if row else None,
        failure_class=verdict.failure_class if verdict else "lost",
        code=verdict.code if verdict else LOST,
        message=verdict.message if verdict else "The outcome came after the lease was lost and was discarded.",
        journal=outcome.journal.kept(),
    )

"""The eleven kinds of test of a tool: what it answers, and that nothing happened outside when nothing should have.

Each kind is played against a running installation (`deedbox.testing.tool_bench`) and a world outside that breaks when it is
told to. What is done outside is counted before and after; a tool that says one thing and does another does not pass.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

from deedbox.operate.tools import Envelope
from deedbox.testing.report import Check
from deedbox.testing.tool_bench import Fault, ToolBench
from deedbox.testing.tool_run import BrokenKindError, ToolCase, ToolRun, approvals, shaped, told, want

_AGAIN = frozenset({"RATE_LIMITED", "PROVIDER_TIMEOUT", "PROVIDER_ERROR"})


@dataclass(frozen=True, slots=True)
class ToolReport:
    """What came of a tool's eleven kinds; `cells` says of each what was answered and how much was done."""

    tool: str
    checks: tuple[Check, ...]
    cells: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether all eleven kinds were played and none failed."""
        return len(self.checks) == len(KINDS) and all(check.mark == "passed" for check in self.checks)

    def text(self) -> str:
        """The report for people, a line for each kind."""
        lines = [f"  {check.mark:10}  {check.title:18}  {check.said or self.cells[check.name]}" for check in self.checks]
        bad = sum(check.mark != "passed" for check in self.checks)
        return "\n".join([self.tool, *lines, f"{bad} of {len(self.checks)} kinds failed" if bad else "all kinds passed"])


async def check_tool(bench: ToolBench, case: ToolCase) -> ToolReport:
    """Play the eleven kinds. Takes some seconds; the world outside is healthy again afterwards."""
    run = ToolRun(bench, case)
    checks: list[Check] = []
    cells: dict[str, str] = {}
    for name, title, play in _KINDS:
        try:
            cells[name] = await play(run)
            checks.append(Check(name, title, "passed"))
        except BrokenKindError as error:
            checks.append(Check(name, title, "failed", str(error)))
        finally:
            await bench.outside.play("none")
        if name == "happy" and checks[-1].mark == "failed":
            # Without knowing what a tool does when all is well nothing can be said of the rest.
            checks += [Check(other, words, "not played", "the happy kind failed") for other, words, _ in _KINDS[1:]]
            break
    return ToolReport(case.tool, tuple(checks), cells)


async def _happy(run: ToolRun) -> str:
    before = await run.count()
    answer = await run.settled(await run.call(run.arguments()))
    run.held = bool(approvals(answer))
    if run.held:
        await run.nothing(before, "it waits for a person")
        await run.decide(answer, "approve")
        answer = await run.over(answer)
    if answer.status != "success":
        raise BrokenKindError(f"all was well, and it answered {told(answer)}: {answer.human_message}")
    run.many = await run.count() - before
    reads = run.bench.tools.described(run.case.tool).annotations["read_only"]
    if reads and run.many:
        raise BrokenKindError(f"it is said to read only, and did {run.many} things")
    if not reads and not run.many:
        raise BrokenKindError("it says success, and nothing was done outside")
    return f"success, {run.many} done"


async def _missing(run: ToolRun) -> str:
    before, name = await run.count(), run.required()
    arguments = run.arguments()
    arguments.pop(name, None)
    answer = await run.call(arguments)
    want(answer, "INVALID_INPUT", f"a call without {name}")
    return await _refused_at(run, before, answer, f"/{name}")


async def _wrong_enum(run: ToolRun) -> str:
    before, name = await run.count(), run.fixed()
    answer = await run.call({**run.arguments(), name: "no_such_value"})
    want(answer, "INVALID_INPUT", f"a value that {name} does not have")
    return await _refused_at(run, before, answer, f"/{name}")


async def _refused_at(run: ToolRun, before: int, answer: Envelope, pointer: str) -> str:
    if pointer not in {fault.pointer for fault in answer.errors}:
        raise BrokenKindError(f"{answer.error_code} does not point at {pointer}")
    return await _refused(run, before, answer)


async def _refused(run: ToolRun, before: int, answer: Envelope) -> str:
    if answer.job_id is not None:
        raise BrokenKindError(f"{answer.error_code}, and a job was made")
    await run.nothing(before, f"it answered {answer.error_code}")
    return f"{answer.error_code}, 0 done"


async def _permission(run: ToolRun) -> str:
    before = await run.count()
    answer = await run.call({**run.arguments(), "role": "admin"}, role=run.case.wrong_role)
    want(answer, "PERMISSION_DENIED", f"a call with the role {run.case.wrong_role}")
    return await _refused(run, before, answer)


async def _duplicate(run: ToolRun) -> str:
    before, key, arguments = await run.count(), f"kinds-{uuid4()}", run.arguments()
    both = await asyncio.gather(run.call(arguments, key=key), run.call(arguments, key=key))
    answer = await run.settled(both[0])
    await run.decide(answer, "approve")
    answer = await run.over(answer)
    again = await run.call(arguments, key=key)
    if len({str(one.job_id) for one in (*both, answer, again)}) != 1:
        raise BrokenKindError("one key made several jobs")
    if answer.status != "success" or again.data != answer.data:
        raise BrokenKindError(f"it answered {told(answer)} first and {told(again)} to the same key later")
    other = await run.call(run.arguments() if callable(run.case.arguments) else _changed(run, arguments), key=key)
    want(other, "KEY_REUSED", "the same key with other arguments")
    await run.exactly(before, run.many, "it was called four times under one key")
    return f"one job, {run.many} done"


def _changed(run: ToolRun, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit and are not the same."""
    name = run.fixed()
    part = run.resolved(run.properties()[name])
    values = [value for value in cast("Sequence[Any]", part.get("enum", ())) if value != arguments.get(name)]
    if not values:
        raise BrokenKindError("give `arguments` as a function, so that two calls can differ")
    return {**arguments, name: values[0]}


def _breaking(fault: Fault, expected: frozenset[str]) -> Callable[[ToolRun], Awaitable[str]]:
    async def play(run: ToolRun) -> str:
        before = await run.count()
        if run.held:
            waits = await run.settled(await run.call(run.arguments()))
            await run.bench.outside.play(fault)
            await run.decide(waits, "approve")
            answer = shaped(await run.bench.outcome(run.case.role, str(waits.job_id), wait_s=1.5))
        else:
            await run.bench.outside.play(fault)
            answer = await run.call(run.arguments(), wait_s=1.5)
            if fault != "hang":
                answer = await run.over(answer)
        await _honest(run, before, answer, expected, fault)
        await run.bench.outside.play("none")
        if answer.status == "error":
            return f"{answer.error_code} (again later), 0 done"
        last = await run.over(answer)
        if last.status != "success":
            raise BrokenKindError(f"all was well again, and it answered {told(last)}: {last.human_message}")
        await run.exactly(before, run.many, "it was tried again by itself until it was done")
        return f"pending, then success, {run.many} done"

    return play


async def _honest(run: ToolRun, before: int, answer: Envelope, expected: frozenset[str], fault: Fault) -> None:
    """Whether what it says while the world outside is broken is true."""
    done = await run.count() - before
    if done > run.many:
        raise BrokenKindError(f"{done} were done outside, {run.many} when all is well")
    if answer.status == "success" and done != run.many:
        raise BrokenKindError(f"it says success, and {done} of {run.many} were done")
    if answer.status == "success":
        raise BrokenKindError("it says success while nothing outside answers")
    if fault == "busy" and done:
        raise BrokenKindError("it was asked to wait, and did it all the same")
    if answer.status == "error":
        if answer.error_code not in expected or not answer.retryable:
            raise BrokenKindError(f"it answered {told(answer)}, retryable={answer.retryable}")
        if done:
            raise BrokenKindError(f"it answered {answer.error_code}, and {done} were done")
    reason = (answer.data or {}).get("reason")
    if reason == "retrying" and "Attempt " not in answer.human_message:
        raise BrokenKindError(f"it tries again and does not say which attempt: {answer.human_message}")
    if reason == "outcome_unknown" and answer.retryable:
        raise BrokenKindError("nobody knows whether it was done, and it says that it can be called again")


async def _partial(run: ToolRun) -> str:
    before = await run.count()
    if not run.many:
        await run.bench.outside.play("half")
        answer = await run.over(await run.call(run.arguments()))
        if answer.status == "success":
            raise BrokenKindError("half an answer became a success")
        await run.nothing(before, "it read half an answer")
        return f"{answer.error_code}, 0 done"
    waits = await run.settled(await run.call(run.arguments()))
    groups = len(approvals(waits))
    if groups > 1:
        await run.decide(waits, "approve", "reject")
    elif run.many == 1:
        return "one thing: all or nothing"
    else:
        await run.bench.outside.play("second_refused")
        await run.decide(waits, "approve")
    answer = await run.over(waits)
    want(answer, "PARTIALLY_DONE", "a part that was done")
    receipts = cast("Sequence[Any]", (answer.data or {}).get("receipts", ()))
    done = await run.count() - before
    if not 0 < done < run.many or len(receipts) != done or not answer.errors:
        raise BrokenKindError(f"{done} of {run.many} were done, with {len(receipts)} receipts and {len(answer.errors)} errors")
    return f"PARTIALLY_DONE, {done} of {run.many} done"


async def _denied(run: ToolRun) -> str:
    before = await run.count()
    answer = await run.settled(await run.call(run.arguments()))
    if not run.held:
        if approvals(answer):
            raise BrokenKindError("it was put to a person now, and was not before")
        await run.exactly(before, run.many, "nobody is asked")
        return f"nobody is asked, {run.many} done"
    await run.decide(answer, "reject")
    answer = await run.over(answer)
    want(answer, "APPROVAL_REJECTED", "a no")
    await run.nothing(before, "a person said no")
    return "APPROVAL_REJECTED, 0 done"


async def _secret(run: ToolRun) -> str:
    before, name = await run.count(), run.text_field()
    # Put together here, so that no file holds what looks like one.
    secret = "sk-" + "live-" + "a1B2" * 8
    answer = await run.call({**run.arguments(), name: secret})
    want(answer, "SECRET_IN_INPUT", f"a secret in {name}")
    if secret in str(answer.shown()):
        raise BrokenKindError("the secret is in the answer")
    return await _refused_at(run, before, answer, f"/{name}")


_KINDS: tuple[tuple[str, str, Callable[[ToolRun], Awaitable[str]]], ...] = (
    ("happy", "happy", _happy),
    ("missing_field", "missing field", _missing),
    ("wrong_enum", "wrong enum", _wrong_enum),
    ("permission", "permission", _permission),
    ("duplicate_key", "duplicate key", _duplicate),
    ("time_out", "time-out", _breaking("hang", _AGAIN)),
    ("rate_limited", "429", _breaking("busy", frozenset({"RATE_LIMITED"}))),
    ("server_error", "500", _breaking("broken", frozenset({"PROVIDER_ERROR"}))),
    ("partial_success", "partial success", _partial),
    ("approval_denied", "approval denied", _denied),
    ("sensitive_input", "sensitive input", _secret),
)

KINDS: tuple[str, ...] = tuple(name for name, _, _ in _KINDS)
"""The names of the kinds, in their order."""
TITLES: Mapping[str, str] = {name: title for name, title, _ in _KINDS}


def table(reports: Sequence[ToolReport]) -> str:
    """The kinds of several tools as a table in Markdown: what each answered, and how much was done outside."""
    head = f"| kind | {' | '.join(f'`{report.tool}`' for report in reports)} |"
    rule = "|---" * (len(reports) + 1) + "|"
    rows = [f"| {TITLES[kind]} | {' | '.join(report.cells.get(kind, '') for report in reports)} |" for kind in KINDS]
    return "\n".join([head, rule, *rows])

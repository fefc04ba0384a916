"""The ledger of effects at the terminal, and the verbs for those that nobody knows about."""

import json
from typing import Annotated, Any, cast
from uuid import UUID

import typer
from rich.text import Text

from deedbox.cli.output import CommandError, Exit, age, console, plain, say, show_json, show_pairs, show_table, style_of
from deedbox.cli.session import AppOption, AsOption, JsonOption, LimitOption, ask_password, person, reader, run
from deedbox.operate.announced import AnnouncedLine
from deedbox.operate.verbs import EffectVerb
from deedbox.wiring import Installation

effects = typer.Typer(no_args_is_help=True, help="The outbox: what was sent, what waits, and what is not known.")

IdArgument = Annotated[UUID, typer.Argument(metavar="ID", help="The effect's id.")]
EvidenceOption = Annotated[str | None, typer.Option(help='What shows it, as JSON, for example \'{"ticket": "T-7"}\'.')]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence; it is kept.")]

DOOR = "cli"


@effects.command("list")
def effects_list(
    state: Annotated[str | None, typer.Option(help="Only those in this state, for example unknown.")] = None,
    limit: LimitOption = 50,
    *,
    as_json: JsonOption = False,
) -> None:
    """The ledger, newest first."""

    async def work(desk: Installation) -> list[dict[str, Any]]:
        return await desk.verbs.effects(reader(desk.settings), state, limit=limit)

    rows = run(work)
    if as_json:
        show_json(rows)
        return
    show_table(
        ["id", "state", "for", "action", "to", "what"],
        [
            [
                row["effect_id"],
                row["state"],
                age(float(row["age_s"])),
                row["action"],
                f"{row['connector']}:{row['target']}",
                row["summary"],
            ]
            for row in rows
        ],
        empty="no effects" if state is None else f"no effect is {state}",
    )


@effects.command("announced")
def effects_announced(*, as_json: JsonOption = False) -> None:
    """What leaves by itself when its window has passed, the next first; until then it can be canceled."""

    async def work(desk: Installation) -> list[AnnouncedLine]:
        return await desk.approvals.announced(desk.settings.tenant, reader(desk.settings))

    lines = run(work)
    if as_json:
        show_json(lines)
        return
    show_table(
        ["id", "action", "to", "leaves in", "asked by", "rule", "what"],
        [
            [
                line.effect_id,
                line.action,
                f"{line.connector}:{line.target}",
                age(line.remaining_s),
                line.asked_by,
                line.rule,
                line.sentence,
            ]
            for line in lines
        ],
        empty="nothing leaves by itself",
    )


@effects.command("show")
def effects_show(effect_id: IdArgument, *, as_json: JsonOption = False) -> None:
    """One effect: exactly what was approved, every receipt, every look-up."""

    async def work(desk: Installation) -> dict[str, Any]:
        return await desk.verbs.effect(reader(desk.settings), effect_id)

    _show(run(work), as_json=as_json)


def _show(row: dict[str, Any], *, as_json: bool, after_verb: bool = False) -> None:
    if as_json:
        show_json(row)
        return
    # After a verb the message says what came of it; otherwise it belongs to the last sending.
    if after_verb:
        say(str(row["message"]))
    why = ", ".join(str(row[name]) for name in ("class", "code") if row[name])
    if row["message"] and not after_verb:
        why = f"{why}: {row['message']}" if why else str(row["message"])
    state = str(row["state"])
    show_pairs(
        [
            ("effect", row["effect_id"]),
            ("state", Text.assemble((state, style_of(state)), f", for {age(float(row['age_s']))}")),
            ("what", row["summary"]),
            ("to", f"{row['connector']}:{row['target']} ({row['slot']})"),
            ("job", row["job_id"]),
            ("authorised by", f"approval {row['approval_id']}" if row["approval_id"] else f"verdict {row['verdict_id']}"),
            ("sendings", row["attempt"]),
            ("first sent", row["first_sent_at"]),
            ("phase reached", row["phase"]),
            ("why", why or None),
            ("goes out until", row["not_after"] if state == "pending" else None),
            ("does not go out because", " ".join(one["message"] for one in row["waits_for"]) or None),
            ("looked up", f"{row['look_ups']} times by the schedule" if row["look_ups"] else None),
            ("looked up next", row["look_up_at"] if state == "unknown" else None),
            ("to settle it", "deedbox effects look-up, confirm, disprove or abandon" if state == "unknown" else None),
        ]
    )
    out = console()
    out.print("\napproved content", style="bold")
    for line in json.dumps(json.loads(row["body"]), ensure_ascii=False, indent=2).splitlines():
        out.print(plain(line), soft_wrap=True)
    receipts: list[dict[str, Any]] = row["receipts"]
    probes: list[dict[str, Any]] = row["probes"]
    out.print()
    show_table(
        ["receipt", "from", "at", "evidence"],
        [
            [one["provider_id"], one["source"], one["stored_at"], json.dumps(one["evidence"], ensure_ascii=False)]
            for one in receipts
        ],
        empty="no receipt",
    )
    if probes:
        out.print()
        rows = [
            [one["verdict"], _who(one), one["probed_at"], json.dumps(one["evidence"], ensure_ascii=False)] for one in probes
        ]
        show_table(["look-up", "by", "at", "evidence"], rows, empty="")


def _who(probe: dict[str, Any]) -> str:
    return str(probe["by_name"] or probe["by_principal"] or "the schedule")


def _do(
    effect_id: UUID,
    verb: EffectVerb,
    who: str,
    *,
    evidence: dict[str, Any] | None = None,
    reason: str | None = None,
    asks_out: bool = False,
    app: str | None = None,
    as_json: bool,
) -> None:
    password = ask_password(who)

    async def work(desk: Installation) -> dict[str, Any]:
        principal = await person(desk, who, password)
        return await desk.verbs.effect_verb(principal, effect_id, verb, evidence=evidence, reason=reason, door=DOOR)

    _show(run(work, asks_out=asks_out, app=app), as_json=as_json, after_verb=True)


def _evidence(text: str | None, **more: str | None) -> dict[str, Any]:
    try:
        given: object = json.loads(text) if text is not None else {}
    except ValueError as error:
        raise CommandError("--evidence: is not JSON", Exit.USAGE) from error
    if not isinstance(given, dict):
        raise CommandError("--evidence: must be a JSON object", Exit.USAGE)
    known = {name: value for name, value in more.items() if value is not None}
    return {**cast("dict[str, Any]", given), **known}


@effects.command("look-up")
def effects_look_up(effect_id: IdArgument, who: AsOption, app: AppOption = None, *, as_json: JsonOption = False) -> None:
    """Ask the provider what became of an unknown effect, and keep its answer."""
    _do(effect_id, "look_up", who, asks_out=True, app=app, as_json=as_json)


@effects.command("confirm")
def effects_confirm(
    effect_id: IdArgument,
    who: AsOption,
    provider_id: Annotated[str, typer.Option(help="The provider's own id of the thing.")],
    evidence: EvidenceOption = None,
    reason: Annotated[str | None, typer.Option(help="A sentence, if there is more to say.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say that it did happen, with the evidence."""
    _do(effect_id, "confirm", who, evidence=_evidence(evidence, provider_id=provider_id), reason=reason, as_json=as_json)


@effects.command("disprove")
def effects_disprove(
    effect_id: IdArgument,
    who: AsOption,
    reason: ReasonOption,
    evidence: EvidenceOption = None,
    app: AppOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Say that it did not happen: it is sent again. A target that cannot be asked takes two people."""
    given = _evidence(evidence)
    _do(effect_id, "disprove", who, evidence=given, reason=reason, asks_out=True, app=app, as_json=as_json)


@effects.command("abandon")
def effects_abandon(effect_id: IdArgument, who: AsOption, reason: ReasonOption, *, as_json: JsonOption = False) -> None:
    """Give it up: it is not sent again, and the job ends as not wholly done."""
    _do(effect_id, "abandon", who, reason=reason, as_json=as_json)


@effects.command("cancel")
def effects_cancel(effect_id: IdArgument, who: AsOption, reason: ReasonOption, *, as_json: JsonOption = False) -> None:
    """Cancel one that has not left yet; it and the dispatcher exclude each other."""
    _do(effect_id, "cancel", who, reason=reason, as_json=as_json)

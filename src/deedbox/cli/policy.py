"""Policies at the terminal: the rules of an app, and what was proposed lately under them."""

from typing import Annotated

import typer

from deedbox.cli.output import CommandError, Exit, console, say, show_json, show_pairs, show_table
from deedbox.cli.session import JsonOption, read_app, reader, run
from deedbox.model.backoff import seconds
from deedbox.operate import policy as operate
from deedbox.operate.policy import PolicyView, RuleView, Trial
from deedbox.wiring import Installation

policy = typer.Typer(no_args_is_help=True, help="The rules of an app, and what was proposed lately under them.")

AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app, as module:attribute or as a .py file.")]


@policy.command("show")
def policy_show(app: AppArgument, *, as_json: JsonOption = False) -> None:
    """The policy of each action, rule by rule, in the order in which they are asked. Needs no database."""
    views = operate.shown(read_app(app).actions)
    if as_json:
        show_json(views)
        return
    for number, view in enumerate(views):
        if number:
            say("")
        _show(view)


def _show(view: PolicyView) -> None:
    console().print(view.action, style="bold")
    show_pairs(
        [
            ("version", view.version),
            ("decided by", ", ".join(view.approvers) or "nobody"),
            ("its input", "is approved before it runs" if view.hold_input else None),
            ("otherwise", view.otherwise),
        ]
    )
    if view.rules:
        rows = [[number, rule.name, rule.verdict, rule.when, _bounds(rule)] for number, rule in enumerate(view.rules, 1)]
        show_table(["", "rule", "verdict", "when", "bounds"], rows, empty="")


def _bounds(rule: RuleView) -> str:
    if rule.grounds is None:
        return ""
    own = [f"window {rule.window_s:g} s"] if rule.window_s else []
    own += [f"share {rule.share:g}"] if rule.share is not None else []
    evidence = rule.grounds["evidence"]
    said = f"{evidence['cases']}, {evidence['date']}: {evidence['rate']:g}"
    return "; ".join(
        [
            *own,
            f"{rule.grounds['per_day']} a day",
            f"until {rule.grounds['valid_until']}",
            f"at least {rule.grounds['threshold']:g} ({said})",
            f"by {rule.grounds['approved_by']}",
        ]
    )


@policy.command("try")
def policy_try(
    app: AppArgument,
    since: Annotated[str, typer.Option(help="How far back, by when jobs were accepted.")] = "7d",
    *,
    as_json: JsonOption = False,
) -> None:
    """What was proposed lately under the rules of the app as it is now, beside what it got. Changes nothing."""
    try:
        since_s = seconds(since, name="--since")
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error

    async def work(desk: Installation) -> Trial:
        return await desk.policies.tried(reader(desk.settings), since_s)

    trial = run(work, app=app)
    if as_json:
        show_json(trial.shown())
        return
    show_table(
        ["action", "it got", "it would get", "groups"],
        [[action, was, now, count] for (action, was, now), count in sorted(trial.counts.items())],
        empty=f"nothing was proposed in the last {since}",
    )
    if trial.not_tried:
        say(f"{trial.not_tried} could not be tried: the app has no such action, or what was proposed has been removed.")
    if trial.differing:
        say("")
        rows = [[line.job_id, line.group, line.was_rule, line.now_rule] for line in trial.differing]
        show_table(["job", "group", "it got, by", "it would get, by"], rows, empty="")

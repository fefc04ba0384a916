"""What an app offers to agents, at the terminal: each tool with what is true of it, and why other actions are none."""

from dataclasses import asdict
from typing import Annotated

import typer

from deedbox.cli.output import show_json, show_table
from deedbox.cli.session import JsonOption, read_app
from deedbox.extend.action import Action
from deedbox.operate.tools import Catalogue, annotations

tools = typer.Typer(no_args_is_help=True, help="Actions as agents see them.")

AppArgument = Annotated[str, typer.Argument(metavar="APP", help="The app, as module:attribute or as a .py file.")]


@tools.command("list")
def tools_list(app: AppArgument, *, as_json: JsonOption = False) -> None:
    """Every action of an app: the tool that it is, or why it is none. Needs no database."""
    found = read_app(app)
    actions = sorted(found.actions.values(), key=lambda action: action.name)
    if as_json:
        catalogue = Catalogue(found.actions)
        show_json([_shown(catalogue, action) for action in actions])
        return
    show_table(
        ["tool", "version", "roles", "is", "calls", "why it is none"],
        [
            [
                action.name,
                action.version,
                ", ".join(sorted(action.roles)),
                ", ".join(name for name, true in annotations(action).items() if true and name != "open_world") or "plain",
                action.offer.calls,
                action.offer.withheld or "",
            ]
            for action in actions
        ],
        empty="the app has no actions",
    )


def _shown(catalogue: Catalogue, action: Action) -> dict[str, object]:
    offered = action.offer.withheld is None
    return {
        "name": action.name,
        "roles": sorted(action.roles),
        "offer": asdict(action.offer),
        "tool": catalogue.tool(action).shown() if offered else None,
    }

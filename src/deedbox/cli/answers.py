"""The questions of the audit at the terminal, each a command: a sentence for people, the records behind it with --json."""

from typing import Annotated

import typer

from deedbox.cli.output import say, show_json
from deedbox.cli.session import JsonOption, reader, run
from deedbox.operate.answers import Answer, Question, ask, ask_key
from deedbox.wiring import Installation

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHAT", help="The id of a job, effect, approval or call, a key, the caller's run, or the provider's id."
    ),
]


def add_questions(group: typer.Typer) -> None:
    """Put the commands into the group of the audit."""
    group.command("key")(audit_key)
    group.command("request")(audit_request)
    group.command("sent")(audit_sent)
    group.command("approved")(audit_approved)
    group.command("drafted")(audit_drafted)
    group.command("called")(audit_called)


def audit_key(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action that was called.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The idempotency key of the call.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Was this key processed?"""

    async def work(desk: Installation) -> list[Answer]:
        return [await ask_key(desk.pool, reader(desk.settings), action, key)]

    _show(run(work), as_json=as_json)


def audit_request(what: WhatArgument, *, as_json: JsonOption = False) -> None:
    """Whose request was it?"""
    _ask("request", what, as_json=as_json)


def audit_sent(what: WhatArgument, *, as_json: JsonOption = False) -> None:
    """Was it sent?"""
    _ask("sent", what, as_json=as_json)


def audit_approved(what: WhatArgument, *, as_json: JsonOption = False) -> None:
    """Who approved it?"""
    _ask("approved", what, as_json=as_json)


def audit_drafted(what: WhatArgument, *, as_json: JsonOption = False) -> None:
    """Which model drafted it?"""
    _ask("drafted", what, as_json=as_json)


def audit_called(what: WhatArgument, *, as_json: JsonOption = False) -> None:
    """By which calls, refused ones too?"""
    _ask("called", what, as_json=as_json)


def _ask(question: Question, what: str, *, as_json: bool) -> None:
    async def work(desk: Installation) -> list[Answer]:
        return await ask(desk.pool, reader(desk.settings), question, what)

    _show(run(work), as_json=as_json)


def _show(found: list[Answer], *, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    for answer in found:
        say(answer.sentence)

"""The report at the terminal: what actions have spent on models lately."""

from typing import Annotated

import typer

from deedbox.cli.output import CommandError, Exit, say, show_json, show_table
from deedbox.cli.session import JsonOption, reader, run
from deedbox.model.backoff import seconds
from deedbox.operate.report import Report, plain_money
from deedbox.wiring import Installation


def report(
    since: Annotated[str, typer.Option(help="How far back, for example 7d or 24h.")] = "7d", *, as_json: JsonOption = False
) -> None:
    """What actions have spent on models: calls, tokens and cost."""
    try:
        since_s = seconds(since, name="since")
    except ValueError as error:
        raise CommandError(str(error), Exit.USAGE) from error

    async def work(desk: Installation) -> Report:
        return await desk.reports.models(reader(desk.settings), since_s)

    found = run(work)
    if as_json:
        show_json(found.shown())
        return
    rows = [
        [
            line.action,
            line.endpoint,
            line.model,
            line.calls,
            line.failures,
            f"{line.input_tokens:,}",
            f"{line.output_tokens:,}",
            "unknown" if line.cost is None else f"{plain_money(line.cost)} {line.currency}",
        ]
        for line in found.models
    ]
    heads = ["action", "endpoint", "model", "calls", "failed", "tokens in", "tokens out", "cost"]
    show_table(heads, rows, empty="no model was asked")
    for currency, amount in found.cost.items():
        say(f"together {amount} {currency}")
    if found.unpriced:
        say(f"{found.unpriced} calls went to endpoints without a price (DEEDBOX_MODELS: input_price, output_price)")

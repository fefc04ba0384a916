"""The sales desk, end to end: `python -m examples.sales_desk.demo`.

A real installation with a PostgreSQL of its own, the CRM as a process beside it. A reader looks a customer up, an operator asks
for a ticket, a manager says yes; then each tool is played in its eleven kinds. `--table` prints what was observed as a table in
Markdown and nothing else. The exit code is 0 only if all was as promised.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence

import structlog

from deedbox.testing import ToolBench, ToolReport, check_tool, table, tool_bench
from examples.sales_desk.app import app
from examples.sales_desk.desk import CASES, CUSTOMER, sales_crm


def say(text: str = "") -> None:
    """A line of the narration."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def story(bench: ToolBench) -> bool:
    """One look-up and one ticket, with what an agent is told at each step."""
    say("A viewer asks: find_customer_by_email")
    found = await bench.call("viewer", "find_customer_by_email", {"email": CUSTOMER})
    say(json.dumps(found.shown(), indent=2, ensure_ascii=False))
    say("\nThe same viewer asks for a ticket, and claims to be an admin")
    ticket = {"customer_email": CUSTOMER, "title": "Wrong invoice", "text": "One grinder too many."}
    refused = await bench.call("viewer", "create_support_ticket", {**ticket, "role": "admin"})
    say(f"  {refused.text}")
    say("\nAn operator asks for it")
    asked = await bench.call("operator", "create_support_ticket", ticket)
    say(f"  {asked.text}")
    for approval in (asked.data or {}).get("approvals", ()):
        await bench.decide(str(approval["approval_id"]), "approve")
    done = await bench.outcome("operator", str(asked.job_id), wait_s=20)
    say(f"A manager says yes:\n  {done.text}")
    return (found.status, refused.error_code, asked.status, done.status) == (
        "success",
        "PERMISSION_DENIED",
        "pending",
        "success",
    )


async def run(*, only_table: bool) -> int:
    """Play it; 0 where all was as promised."""
    async with sales_crm() as crm, tool_bench(app, crm, settings=crm.settings) as bench:
        whole = only_table or await story(bench)
        reports: list[ToolReport] = []
        for case in CASES:
            reports.append(await check_tool(bench, case))
            if not only_table:
                say(f"\n{reports[-1].text()}")
    say(f"\n{table(reports)}" if not only_table else table(reports))
    return 0 if whole and all(report.passed for report in reports) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="examples.sales_desk.demo", description="Six tools, eleven kinds of test each.")
    parser.add_argument("--table", action="store_true", help="print the table alone")
    given = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return asyncio.run(run(only_table=given.table))


if __name__ == "__main__":
    raise SystemExit(main())

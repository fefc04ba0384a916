"""The sales desk: six tools in eleven kinds of test each, against its CRM in a process of its own, and the table of roles."""

from pathlib import Path

import pytest

from deedbox.testing import ToolBench, ToolCase, check_tool, tool_bench
from deedbox.testing.tool_kinds import KINDS, TITLES, table
from deedbox.wiring import Database
from examples.sales_desk.app import app
from examples.sales_desk.desk import CASES, CUSTOMER, sales_crm
from tests.database import TestDatabase
from tests.guarantees import proves

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parent.parent / "docs" / "sales_desk.md"
BY_NAME = {case.tool: case for case in CASES}


def place(database: TestDatabase) -> Database:
    """The database as the bench takes it."""
    return Database(database.url, database.owner_url, direct=database.direct_url)


def cells_of(tool: str) -> dict[str, str]:
    """What the page's table says of a tool, by kind."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head = next(line for line in lines if line[0].strip() == "kind")
    column = [cell.strip() for cell in head].index(f"`{tool}`")
    rows = {line[0].strip(): line[column].strip() for line in lines if len(line) == len(head)}
    return {kind: rows[TITLES[kind]] for kind in KINDS}


@proves("G-TOOL-KINDS")
@pytest.mark.parametrize("tool", sorted(BY_NAME))
async def test_the_eleven_kinds(database: TestDatabase, tool: str) -> None:
    """Each kind passes, and the page's table says what was observed."""
    async with sales_crm() as crm, tool_bench(app, crm, settings=crm.settings, database=place(database)) as bench:
        report = await check_tool(bench, BY_NAME[tool])
    assert report.passed, report.text()
    assert dict(report.cells) == cells_of(tool)


@proves("G-TOOL-ROLE")
async def test_the_table_of_roles(database: TestDatabase) -> None:
    """A viewer reads, an operator asks for tickets, a manager for deals; nobody passes the gate, whatever the role."""
    reads = {"find_customer_by_email", "get_order_status"}
    asks = {"create_lead", "create_support_ticket", "draft_customer_reply"}
    wanted = {"viewer": reads, "operator": reads | asks, "manager": reads | asks | {"update_deal_stage"}, "admin": set[str]()}
    async with sales_crm() as crm, tool_bench(app, crm, settings=crm.settings, database=place(database)) as bench:
        for role, tools in wanted.items():
            assert {tool.name for tool in bench.tools.listed(await bench.caller(role))} == tools, role
            for case in CASES:
                assert isinstance(case, ToolCase)
                answer = await _called(bench, role, case)
                assert (answer == "PERMISSION_DENIED") == (case.tool not in tools), (role, case.tool, answer)
        # Managers asked for everything there is to ask for: all of it waits, and nothing was done.
        assert list(await crm.writes()) == []


async def _called(bench: ToolBench, role: str, case: ToolCase) -> str:
    arguments = case.arguments(1) if callable(case.arguments) else case.arguments
    answer = await bench.call(role, case.tool, arguments, key=f"{role}-{case.tool}", wait_s=10)
    if case.tool in {"find_customer_by_email", "get_order_status"} or answer.error_code is not None:
        return str(answer.error_code or answer.status)
    assert (answer.status, (answer.data or {}).get("reason")) == ("pending", "awaiting_approval"), answer
    return "pending"


async def test_what_the_business_knows(database: TestDatabase) -> None:
    """Each tool ends with a code of its own where there is nothing to do, and does nothing."""
    wanted = [
        ("find_customer_by_email", {"email": "nobody@example.org"}, "CUSTOMER_NOT_FOUND"),
        ("get_order_status", {"order_number": "Z-1"}, "ORDER_NOT_FOUND"),
        ("create_lead", {"name": "Zoë", "email": CUSTOMER, "company": "Aurore", "source": "web"}, "ALREADY_A_CUSTOMER"),
        ("update_deal_stage", {"deal_id": "deal_x", "stage": "won", "reason": "Signed."}, "DEAL_NOT_FOUND"),
        ("update_deal_stage", {"deal_id": "deal_1", "stage": "qualified", "reason": "Signed."}, "DEAL_ALREADY_THERE"),
        ("create_support_ticket", {"customer_email": "x@example.org", "title": "T", "text": "t"}, "CUSTOMER_NOT_FOUND"),
        ("draft_customer_reply", {"customer_email": "x@example.org", "subject": "S", "points": ["p"]}, "CUSTOMER_NOT_FOUND"),
    ]
    async with sales_crm() as crm, tool_bench(app, crm, settings=crm.settings, database=place(database)) as bench:
        for tool, arguments, code in wanted:
            answer = await bench.call("manager", tool, arguments, wait_s=20)
            assert (answer.status, answer.error_code, answer.retryable) == ("error", code, False), answer
        assert list(await crm.writes()) == []


def test_the_tables_of_reports() -> None:
    """The table has a row for each kind, in their order."""
    assert len(KINDS) == 11
    assert [line.split("|")[1].strip() for line in table([]).splitlines()[2:]] == [TITLES[kind] for kind in KINDS]

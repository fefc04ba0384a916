"""The report of what actions have spent on models, at the terminal and over HTTP: whose, how far back, how exactly."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deedbox.store import model_calls
from deedbox.store.ids import IdSource
from deedbox.store.model_calls import ModelCallRow
from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit
from tests.database import TestDatabase
from tests.servers.api import api, problem_of
from tests.servers.commands import Cli, refused

pytestmark = pytest.mark.anyio

# Action, endpoint, model, tokens in, tokens out, cost, currency, the failure's code.
Spent = tuple[str, str, str, int, int, str | None, str | None, str | None]
SPENT: Sequence[Spent] = (
    ("draft_reply", "main", "large", 1000, 200, "0.000000000001", "USD", None),
    ("draft_reply", "main", "large", 2000, 300, "1.5", "USD", None),
    ("draft_reply", "main", "large", 500, 0, "0", "USD", "timed_out"),
    ("draft_reply", "swiss", "large", 10, 1, "7.25", "CHF", None),
    ("sort_mail", "local", "tiny", 90_000, 4000, None, None, None),
    ("sort_mail", "local", "tiny", 10_000, 0, None, None, "unreachable"),
)


async def spend(database: TestDatabase, tenant: str = "default") -> None:
    """Journal these calls, two to a job."""
    pool = Pool(database.url, "report", size=1)
    await pool.open(wait=True)
    ids = await IdSource.read(pool)
    async with autocommit(pool) as connection:
        for number, (action, endpoint, model, given, made, cost, currency, code) in enumerate(SPENT):
            if number % 2 == 0:
                job_id = ids.new()
            row = ModelCallRow(
                ids.new(),
                job_id,  # pyright: ignore[reportPossiblyUnboundVariable] -- the first is even
                ids.new(),
                tenant,
                action,
                "model",
                endpoint,
                model,
                1,
                given,
                made,
                10,
                cost=None if cost is None else Decimal(cost),
                currency=currency,
                code=code,
            )
            await model_calls.journal(connection, row)
    await pool.close()


def said(line: dict[str, Any]) -> tuple[Any, ...]:
    """What counts of a line."""
    names = ("action", "endpoint", "calls", "failures", "input_tokens", "output_tokens", "cost", "currency", "jobs")
    return tuple(line[name] for name in names)


LINES = [
    ("draft_reply", "swiss", 1, 0, 10, 1, "7.25", "CHF", 1),
    ("draft_reply", "main", 3, 1, 3500, 500, "1.500000000001", "USD", 2),
    ("sort_mail", "local", 2, 1, 100_000, 4000, None, None, 1),
]


async def test_the_report_adds_up_exactly_what_the_tenant_has_spent_since_then(database: TestDatabase) -> None:
    async with api(database) as one, one.client() as client:
        assert (await client.get("/api/report")).json() == {"seconds": 604_800.0, "models": [], "cost": {}, "unpriced": 0}
        await spend(database)
        await spend(database, "other")
        found = (await client.get("/api/report?since=1h")).json()
        assert [(*said(line)[:6], trimmed(line["cost"]), *said(line)[7:]) for line in found["models"]] == LINES
        assert (found["cost"], found["unpriced"], found["seconds"]) == ({"CHF": "7.25", "USD": "1.500000000001"}, 2, 3600.0)
        earlier = "UPDATE deedbox.model_call SET called_at = called_at - interval '2 hours' WHERE endpoint = 'main' RETURNING 1"
        assert len(await database.rows(earlier)) == 6
        assert [said(line)[1] for line in (await client.get("/api/report?since=1h")).json()["models"]] == ["swiss", "local"]
        assert len((await client.get("/api/report?since=3h")).json()["models"]) == 3


def trimmed(cost: str | None) -> str | None:
    """A sum without the zeros at its end."""
    return cost if cost is None else cost.rstrip("0")


@pytest.mark.parametrize("since", ["", "soon", "-1h", "0", "401d", "nan", "9" * 400])
async def test_a_time_that_cannot_be_is_refused_by_name(database: TestDatabase, since: str) -> None:
    async with api(database) as one, one.client() as client:
        status, code, *_ = problem_of(await client.get("/api/report", params={"since": since}))
    assert (status, code) == (400, "invalid_parameter")


async def test_the_report_at_the_terminal(database: TestDatabase, tmp_path: Path) -> None:
    cli = Cli(database.owner_url, tmp_path)
    assert "no model was asked" in (await cli("report")).out
    await spend(database)
    shown = await cli("report", "--since", "24h")
    assert shown.code == 0
    for piece in (
        "7.25 CHF",
        "1.500000000001 USD",
        "unknown",
        "100,000",
        "together 7.25 CHF",
        "2 calls went to endpoints without",
    ):
        assert piece in " ".join(shown.out.split()), piece
    whole = (await cli("report", "--json")).json()
    assert (whole["cost"], whole["unpriced"], len(whole["models"])) == ({"CHF": "7.25", "USD": "1.500000000001"}, 2, 3)
    refused(await cli("report", "--since", "soon"), 2, "since")
    refused(await cli("report", "--since", "401d"), 2, "400 days")

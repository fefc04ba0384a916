"""Fixtures that all tests share, and what a run through a pooler in transaction mode changes for all of them."""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import psycopg
import pytest

from deedbox import embedded
from deedbox.store.wire import Wire
from tests.database import RUN, TestDatabase, fresh_database, state_of_run, through_a_pooler

# As a function of the class it is called on: a pool's connections are of a class of their own.
_connect: Any = cast("Any", psycopg.AsyncConnection.connect).__func__


async def _unprepared(
    kind: type[psycopg.AsyncConnection[Any]], conninfo: str = "", **options: Any
) -> psycopg.AsyncConnection[Any]:
    """A connection that never names a statement: behind a pooler the name would be another session's."""
    options["prepare_threshold"] = None
    return await _connect(kind, conninfo, **options)


class Unnamed(Wire):
    """A wire that never names a statement, for the same reason."""

    def __init__(self, url: str, options: Mapping[str, Any], *, answer_s: float, prepare: bool = True) -> None:
        super().__init__(url, options, answer_s=answer_s, prepare=prepare and not through_a_pooler())


WORKER = "PYTEST_XDIST_WORKER"
"""What xdist sets in the processes that run the tests, and only there."""


def pytest_configure() -> None:
    """Name the run. Through a pooler, do in this process what DEEDBOX_PREPARE_STATEMENTS does in those that the tests start."""
    if WORKER not in os.environ:
        os.environ[RUN] = secrets.token_hex(5)
    if through_a_pooler():
        os.environ["DEEDBOX_PREPARE_STATEMENTS"] = "false"
        pytest.MonkeyPatch().setattr(psycopg.AsyncConnection, "connect", classmethod(_unprepared))
        pytest.MonkeyPatch().setattr("deedbox.store.pool.Wire", Unnamed)


def pytest_unconfigure() -> None:
    """Leave nothing behind: a run's databases are hundreds of megabytes."""
    if WORKER not in os.environ and (state := state_of_run()).exists():
        embedded.remove(state)
        shutil.rmtree(state)


@pytest.fixture
def anyio_backend() -> str:
    """The loops are asyncio's."""
    return "asyncio"


@pytest.fixture
async def database() -> AsyncIterator[TestDatabase]:
    """A migrated database of this test's own."""
    async with fresh_database() as one:
        yield one


@pytest.fixture
async def database_url(database: TestDatabase) -> str:
    """The application's URL of a migrated database of this test's own."""
    return database.url

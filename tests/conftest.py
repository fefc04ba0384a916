"""Fixtures that all tests share."""

from collections.abc import AsyncIterator

import pytest

from tests.database import TestDatabase, fresh_database


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

"""The schema: as written down, as migrated, and what happens when versions do not fit."""

import pytest

from deedbox.model.lifecycle import ALL, JOB
from deedbox.store.loader import statements
from deedbox.store.migrate import SchemaError, migrate, newest, require_current
from deedbox.store.pool import connect
from tests.database import TestDatabase
from tests.guarantees import proves
from tools.schema import TARGET, dump

pytestmark = pytest.mark.anyio


@proves("G-SCHEMA-FRESH")
async def test_the_schema_file_is_what_the_migrations_make(database: TestDatabase) -> None:
    if "host=%2F" not in database.owner_url and "host='/" not in database.owner_url and "host=/" not in database.owner_url:
        pytest.skip("the dump is compared on the embedded PostgreSQL, whose version writes it")
    assert dump(database.owner_url) == TARGET.read_text(), "run `python -m tools.schema`"


async def test_migrating_again_changes_nothing(database: TestDatabase) -> None:
    assert await migrate(database.owner_url) == []


async def test_a_newer_schema_is_refused_and_left_alone(database: TestDatabase) -> None:
    await database.rows("INSERT INTO deedbox.schema_version (version, name, checksum) VALUES (%s, 'later', 'x')", newest() + 1)
    connection = await connect(database.url, "test")
    try:
        with pytest.raises(SchemaError, match="newer than this build"):
            await require_current(connection)
    finally:
        await connection.close()
    with pytest.raises(SchemaError, match="newer than this build"):
        await migrate(database.owner_url)


async def test_a_changed_migration_is_noticed(database: TestDatabase) -> None:
    await database.rows("UPDATE deedbox.schema_version SET checksum = 'other'")
    with pytest.raises(SchemaError, match="was changed"):
        await migrate(database.owner_url)


def test_every_statement_is_described_and_guards_come_from_the_model() -> None:
    for file in ("accept", "queue", "admission", "decision", "sweep", "outbox"):
        for text in statements(file).values():
            assert "{{" not in text
    assert "'queued'" in statements("queue")["claim"]


def test_every_state_of_every_machine_is_reached_and_left_or_ended() -> None:
    for machine in ALL:
        reached = {move.target for move in machine.moves}
        left = {source for move in machine.moves for source in move.sources}
        assert reached == set(machine.states)
        assert left == set(machine.live)
    assert JOB.allows("queued", "running")
    assert not JOB.allows("completed", "queued")


async def test_the_moves_that_the_guard_is_not_called_for_are_edges(database: TestDatabase) -> None:
    conditions = {
        str(row[0]): str(row[1])
        for row in await database.rows(
            "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE tgrelid = 'deedbox.queue'::regclass AND NOT tgisinternal"
        )
    }
    # Exactly these two are left out, and each is legal whatever else the row says.
    assert "(NOT ((old.state = 'queued'::text) AND (new.state = 'running'::text)))" in conditions["queue_guard"]
    assert "WHEN ((old.state <> 'running'::text))" in conditions["queue_guard_delete"]
    assert JOB.allows("queued", "running")
    assert all(JOB.allows("running", ended) for ended in JOB.ended)

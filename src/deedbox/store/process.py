"""The processes that have this database open, each with what it was started with."""

from typing import Any

from deedbox.store.loader import statement
from deedbox.store.pool import Connection


async def keep_process(connection: Connection, **row: Any) -> None:
    """Publish a process: process_id, roles, version, schema_version, settings_sha256, environment_switch."""
    await connection.execute(statement("process", "keep_process"), row)


async def forget_process(connection: Connection, process_id: str) -> None:
    """Say that a process has stopped."""
    await connection.execute(statement("process", "forget_process"), {"process_id": process_id})


async def touch_process(connection: Connection, process_id: str) -> None:
    """Say that a process is alive."""
    await connection.execute(statement("process", "touch_process"), {"process_id": process_id})

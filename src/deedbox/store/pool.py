"""Connections to PostgreSQL: every one with its time-outs, its name and READ COMMITTED pinned."""

from typing import Any, TypeAlias

from psycopg import AsyncConnection, conninfo
from psycopg_pool import AsyncConnectionPool

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]
Pool: TypeAlias = AsyncConnectionPool[Connection]

STATEMENT_TIMEOUT_MS = 15_000
LOCK_TIMEOUT_MS = 5_000
IDLE_IN_TRANSACTION_MS = 30_000


def options(name: str, *, statement_timeout_ms: int = STATEMENT_TIMEOUT_MS) -> dict[str, Any]:
    """The connection parameters every connection of Deedbox carries; `name` shows in pg_stat_activity."""
    return {
        "application_name": f"deedbox {name}",
        "connect_timeout": 10,
        "options": (
            f"-c statement_timeout={statement_timeout_ms} -c lock_timeout={LOCK_TIMEOUT_MS} "
            f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_MS} "
            # Every statement has its index; what was planned while a table was empty must not scan it when it has grown.
            "-c enable_seqscan=off "
            "-c default_transaction_isolation=read\\ committed -c timezone=UTC"
        ),
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }


def make_pool(
    url: str, name: str, *, size: int, prepare: bool = True, statement_timeout_ms: int = STATEMENT_TIMEOUT_MS
) -> Pool:
    """A pool that is not open yet; `prepare` off suits a pooler in transaction mode that cannot keep named statements."""
    return AsyncConnectionPool(
        conninfo.make_conninfo(url),
        kwargs={
            "autocommit": True,
            "prepare_threshold": 5 if prepare else None,
            **options(name, statement_timeout_ms=statement_timeout_ms),
        },
        min_size=1,
        max_size=size,
        timeout=10,
        open=False,
        name=name,
    )


async def connect(url: str, name: str, *, prepare: bool = True) -> Connection:
    """One connection of its own, in autocommit, for a listener or a heartbeat. Raises psycopg.OperationalError."""
    return await AsyncConnection.connect(
        conninfo.make_conninfo(url), autocommit=True, prepare_threshold=5 if prepare else None, **options(name)
    )

"""Connections to PostgreSQL: every one with its time-outs, its name and READ COMMITTED pinned."""

from typing import Any, TypeAlias

from psycopg import AsyncConnection, conninfo
from psycopg_pool import AsyncConnectionPool

from deedbox.store.bounded import BoundedConnection
from deedbox.store.wire import GRACE_S, Wire

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]

STATEMENT_TIMEOUT_MS = 15_000
LOCK_TIMEOUT_MS = 5_000
IDLE_IN_TRANSACTION_MS = 30_000
# For a few rows a plan made for them looks cheaper than the one that is kept, each time anew: planning the end of a job took
# the server longer than ending it. The kept plans are those that tests/test_plans.py holds to a number of pages.
_GENERIC = "-c plan_cache_mode=force_generic_plan"


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


class Pool(AsyncConnectionPool[Connection]):
    """Connections that are lent, and beside them the wires: those that a part of this process keeps for its hot statements.

    Both let go whoever waits for a server that does not answer.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        size: int,
        prepare: bool = True,
        statement_timeout_ms: int = STATEMENT_TIMEOUT_MS,
        grace_s: float = GRACE_S,
    ) -> None:
        """A pool that is not open yet; `prepare` off suits a pooler in transaction mode that cannot keep named statements.

        A server that does not answer `grace_s` seconds after its own time-out counts as gone.
        """
        self._url = conninfo.make_conninfo(url)
        self._options = options(name, statement_timeout_ms=statement_timeout_ms)
        self._answer_s = statement_timeout_ms / 1000 + grace_s
        self._prepares = prepare
        self._wires: dict[str, Wire] = {}
        super().__init__(
            self._url,
            connection_class=BoundedConnection,
            configure=self._bound,
            kwargs={"autocommit": True, "prepare_threshold": 5 if prepare else None, **self._options},
            min_size=1,
            max_size=size,
            timeout=10,
            open=False,
            name=name,
        )

    async def _bound(self, connection: Connection) -> None:
        if isinstance(connection, BoundedConnection):
            connection.answer_s = self._answer_s

    def wire(self, part: str) -> Wire:
        """The wire of this name, the same one each time; it connects when it is first used, and ends with the pool."""
        found = self._wires.get(part)
        if found is None:
            options = self._options | {"options": f"{self._options['options']} {_GENERIC}"}
            found = self._wires[part] = Wire(self._url, options, answer_s=self._answer_s, prepare=self._prepares)
        return found

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109 -- the parent's signature
        """Close the wires, then the pool as its parent does."""
        for wire in self._wires.values():
            await wire.close()
        await super().close(timeout)


async def connect(url: str, name: str, *, prepare: bool = True) -> Connection:
    """One connection of its own, in autocommit, for a listener or a heartbeat. Raises psycopg.OperationalError."""
    return await AsyncConnection.connect(
        conninfo.make_conninfo(url), autocommit=True, prepare_threshold=5 if prepare else None, **options(name)
    )

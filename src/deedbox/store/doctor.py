"""What `doctor` and the lists of people read: the server, its roles, who is there, and whether each job has one place."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from deedbox.model.identity import Verb
from deedbox.store.loader import statement
from deedbox.store.pool import Connection

PAGES = 50
LOOKS = 1000


@dataclass(frozen=True, slots=True)
class Server:
    """The database server: `number` is as in server_version_num (180004), `superuser` is about the connection's user."""

    number: int
    text: str
    user: str
    superuser: bool

    @property
    def major(self) -> int:
        """The major version, 15 to 18 being the ones that Deedbox is made for."""
        return self.number // 10_000


@dataclass(frozen=True, slots=True)
class PrincipalLine:
    """A person or a service as a list shows it; `keys` counts the living ones."""

    name: str
    kind: str
    roles: tuple[str, ...]
    keys: int
    created_at: datetime
    disabled_at: datetime | None
    email: str | None = None
    verbs: tuple[Verb, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """How many things wait for somebody."""

    unknown_effects: int
    open_alerts: int
    pending_approvals: int


async def server(connection: Connection) -> Server:
    """The server at the other end; works without any schema."""
    cursor = await connection.execute(statement("doctor", "server"))
    row = await cursor.fetchone()
    if row is None:
        raise RuntimeError("the server did not tell its version")
    return Server(int(row[0]), str(row[1]), str(row[2]), bool(row[3]))


async def roles(connection: Connection) -> frozenset[str]:
    """Those of `deedbox_owner` and `deedbox_app` that are there."""
    cursor = await connection.execute(statement("doctor", "roles"))
    return frozenset(str(row[0]) for row in await cursor.fetchall())


async def people(connection: Connection, tenant: str) -> list[PrincipalLine]:
    """Everybody of a tenant, people first."""
    cursor = await connection.execute(statement("doctor", "people"), {"tenant": tenant})
    return [
        PrincipalLine(row[0], row[1], tuple(row[2]), int(row[3]), row[4], row[5], row[6], tuple(row[7]))
        for row in await cursor.fetchall()
    ]


async def figures(connection: Connection, tenant: str) -> Figures:
    """What waits for somebody in a tenant."""
    cursor = await connection.execute(statement("doctor", "figures"), {"tenant": tenant})
    row = await cursor.fetchone()
    return Figures(int(row[0]), int(row[1]), int(row[2])) if row else Figures(0, 0, 0)


async def misplaced(connection: Connection) -> UUID | None:
    """A job that is in the queue and has ended, or neither; None when every job that was looked at has exactly one place.

    Looks at the newest PAGES pages; sweep walks over all of them and leaves an alert, which counts as well.
    """
    cursor = await connection.execute(statement("doctor", "misplaced_before"))
    row = await cursor.fetchone()
    if row is not None:
        return UUID(str(row[0]))
    below = UUID(int=(1 << 128) - 1)
    for _ in range(PAGES):
        cursor = await connection.execute(statement("doctor", "misplaced"), {"below": below, "limit": LOOKS})
        row = await cursor.fetchone()
        if row is None or row[2] is not None or row[0] < LOOKS:
            return None if row is None or row[2] is None else UUID(str(row[2]))
        below = row[1]
    return None

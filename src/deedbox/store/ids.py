"""UUIDv7 (RFC 9562) stamped by the database's clock, carried forward by this process's monotonic one.

The stamp orders rows and picks their partition; no decision is taken on it. `IdSource.read` aligns it with the database.
"""

import os
import struct
import threading
import time
from uuid import UUID, SafeUUID

from deedbox.store.pool import Pool
from deedbox.store.transaction import autocommit

_MILLIS = (1 << 48) - 1
# The operating system is asked for so many at a time; each is given out once.
_AHEAD = 256
_new, _set = object.__new__, object.__setattr__


class IdSource:
    """Makes ids that ascend within this process, also when many are made in one millisecond."""

    def __init__(self, database_ms: float) -> None:
        """`database_ms` is the database's clock in Unix milliseconds at this moment."""
        self._offset = database_ms - time.monotonic() * 1000
        self._last = 0
        self._lock = threading.Lock()
        self._randoms: list[int] = []

    @classmethod
    async def read(cls, pool: Pool) -> "IdSource":
        """Align with the database's clock."""
        async with autocommit(pool) as connection:
            cursor = await connection.execute("SELECT extract(epoch FROM deedbox.clock())::float8 * 1000")
            row = await cursor.fetchone()
        if row is None:
            raise RuntimeError("the database did not tell its time")
        return cls(float(row[0]))

    def new(self) -> UUID:
        """One id: 48 bits of time, 12 of a counter that makes ids ascend, 62 of randomness."""
        with self._lock:
            tick = int((time.monotonic() * 1000 + self._offset) * 4096)
            self._last = tick = max(tick, self._last + 1)
            if not self._randoms:
                self._randoms += _drawn(_AHEAD)
            random = self._randoms.pop()
        return _uuid(_number(tick, random))

    def many(self, count: int) -> list[UUID]:
        """`count` ids, ascending."""
        return [_uuid(number) for number in self._numbers(count)]

    def many_texts(self, count: int) -> list[str]:
        """The same as 32 hexadecimal digits each, for those that go to the database and come back from there, if at all."""
        return [f"{number:032x}" for number in self._numbers(count)]

    def many_bytes(self, count: int) -> list[bytes]:
        """The same as 16 bytes each."""
        return [number.to_bytes(16) for number in self._numbers(count)]

    def _numbers(self, count: int) -> list[int]:
        with self._lock:
            first = max(int((time.monotonic() * 1000 + self._offset) * 4096), self._last + 1)
            self._last = first + count - 1
        return [_number(tick, random) for tick, random in enumerate(_drawn(count), first)]


def _uuid(number: int) -> UUID:
    """The id of this number, which is known to be one: `UUID(int=...)` looks at all the ways in which it could be given."""
    made = _new(UUID)
    _set(made, "int", number)
    _set(made, "is_safe", SafeUUID.unknown)
    return made


def _drawn(count: int) -> tuple[int, ...]:
    return struct.unpack(f"{count}Q", os.urandom(8 * count))


def _number(tick: int, random: int) -> int:
    return (tick >> 12 & _MILLIS) << 80 | 7 << 76 | (tick & 0xFFF) << 64 | 2 << 62 | random >> 2

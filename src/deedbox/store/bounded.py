"""A connection whose server has to answer: whoever waits for a silent one is let go, and the connection is given up.

The server's own time-outs end a statement that takes too long, and `tcp_user_timeout` a connection whose packets nobody
confirms. Neither helps where something in between confirms them and says nothing more: a proxy or a pooler that hangs, a server
that stands still.
"""

from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.errors import _WaitTimeout  # pyright: ignore[reportPrivateUsage] -- how the driver says that its own timer ran out

_T = TypeVar("_T")


class BoundedConnection(AsyncConnection[tuple[Any, ...]]):
    """No statement, begin, commit or rollback waits for longer than `answer_s` seconds for the server to answer.

    Raises psycopg.OperationalError then, and is closed: what was under way may have been committed or not. It is the driver's
    own wait, which has a timer in any case, with an end.
    """

    answer_s: float = 20.0

    async def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:  # noqa: ASYNC109 -- the parent's signature
        """Wait as the driver does, but for no longer than `answer_s`; a time-out of the caller's own is left to the caller."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        try:
            return await super().wait(gen, interval, self.answer_s)
        except _WaitTimeout:
            # Nobody can tell what the server will still say: nothing more is asked on this connection.
            self.pgconn.finish()
        raise psycopg.OperationalError(f"the server did not answer within {self.answer_s:g} s")

"""A connection of its own that runs single statements back to back, for the few that every job passes through.

Each statement is a transaction of its own: it is sent, together with the mark that commits it, behind those that are under way
(libpq's pipeline mode), so the server never waits for this process between two of them, and there is no pool to ask, no
transaction to begin and nothing to prepare again. Values go as text; rows come back as the driver reads them.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.abc import Transformer as Reading
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from deedbox.store.loader import Numbered, numbered

CONNECT_S = 10.0
"""How long a statement waits for a server that is away, in seconds; the same as for a connection of the pool."""
GRACE_S = 5.0
"""How much longer than the server's own time-out an answer may take, in seconds, before the server counts as gone."""
_SYNC, _FAILED = pq.ExecStatus.PIPELINE_SYNC, pq.ExecStatus.FATAL_ERROR
_STALE_PLAN = {"26000", "0A000"}


@dataclass(slots=True, eq=False)
class _Sent:
    """A statement that was sent and not answered."""

    answer: "asyncio.Future[list[tuple[Any, ...]]]"
    timer: asyncio.TimerHandle
    prepares: bytes | None
    results: list[pq.abc.PGresult] = field(default_factory=list["pq.abc.PGresult"])


@dataclass(slots=True)
class _Line:
    """One live connection."""

    connection: "AsyncConnection[Any]"
    wire: pq.abc.PGconn
    reading: Reading
    fd: int
    prepared: set[bytes] = field(default_factory=set[bytes])
    sent: "deque[_Sent]" = field(default_factory=deque["_Sent"])
    row_types: dict[str, int] = field(default_factory=dict[str, int])
    writing: bool = False
    lost: bool = False


class Wire:
    """Connects when it is first used, and again after the connection was lost. For one event loop."""

    def __init__(self, url: str, options: Mapping[str, Any], *, answer_s: float, prepare: bool = True) -> None:
        """`options` are connection parameters; an answer that takes longer than `answer_s` seconds counts as lost.

        `prepare` off suits a pooler that cannot keep named statements.
        """
        self._url = url
        self._options = dict(options)
        self._answer_s = answer_s
        self._prepare = prepare
        self._line: _Line | None = None
        self._opening: asyncio.Task[_Line] | None = None
        self._closed = False

    async def row_type(self, name: str) -> int:
        """The id of a row type of the schema; asked once on a connection. Raises what `run` raises."""
        line = self._line
        found = None if line is None else line.row_types.get(name)
        if found is None:
            found = int((await self.run(numbered("packed", "row_type"), {"name": name}))[0][0])
            if self._line is not None:
                self._line.row_types[name] = found
        return found

    async def run(self, statement: Numbered, values: Mapping[str, str | bytes | None]) -> list[tuple[Any, ...]]:
        """The rows of one statement, once it is committed. Values are text, and bytes are values in binary form.

        Raises what the server refuses, as the driver's own errors, and psycopg.OperationalError where there is no connection
        or none any more: then it may have been committed or not. Raises psycopg.DataError for a NUL in a value.
        """
        line = self._line or await self._open()
        parameters, formats = _parameters(statement, values)
        loop = asyncio.get_running_loop()
        prepares = None
        try:
            if not self._prepare:
                line.wire.send_query_params(statement.text, parameters, param_formats=formats)
            else:
                if statement.name not in line.prepared:
                    prepares = statement.name
                    line.prepared.add(prepares)
                    line.wire.send_prepare(prepares, statement.text)
                line.wire.send_query_prepared(statement.name, parameters, formats)
            line.wire.pipeline_sync()
            if line.wire.flush():
                self._write(loop, line)
        except psycopg.Error as error:
            self._lose(line, error)
            raise
        answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()
        timer = loop.call_later(self._answer_s, self._lose, line, psycopg.OperationalError("the server does not answer"))
        line.sent.append(_Sent(answer, timer, prepares))
        return await answer

    async def close(self) -> None:
        """End the connection for good. Statements under way may have been committed or not."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError, psycopg.Error):
                await self._opening
        if self._line is not None:
            self._lose(self._line, psycopg.OperationalError("the connection was closed"))

    async def _open(self) -> _Line:
        # Shared, so that many who wait for a server that is away wait once and not one after the other.
        if self._opening is None or self._opening.done():
            self._opening = asyncio.get_running_loop().create_task(self._connect())
        return await asyncio.shield(self._opening)

    async def _connect(self) -> _Line:
        until = time.monotonic() + CONNECT_S
        pause = 0.05
        while not self._closed:
            try:
                connection = await AsyncConnection.connect(self._url, autocommit=True, **self._options)
                break
            except psycopg.OperationalError:
                if time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter
            pause = min(1.0, 2 * pause)
        else:
            raise psycopg.OperationalError("the connection was closed")
        wire = connection.pgconn
        wire.enter_pipeline_mode()
        line = self._line = _Line(connection, wire, Transformer(connection), wire.socket)
        asyncio.get_running_loop().add_reader(line.fd, self._read, line)
        return line

    def _write(self, loop: asyncio.AbstractEventLoop, line: _Line) -> None:
        if not line.writing:
            line.writing = True
            loop.add_writer(line.fd, self._written, line)

    def _written(self, line: _Line) -> None:
        try:
            if line.wire.flush():
                return
        except psycopg.Error as error:
            self._lose(line, error)
            return
        line.writing = False
        asyncio.get_running_loop().remove_writer(line.fd)

    def _read(self, line: _Line) -> None:
        wire = line.wire
        try:
            wire.consume_input()
            between = True
            while not wire.is_busy():
                result = wire.get_result()
                if result is None:
                    if between:
                        return
                    between = True
                    continue
                between = result.status == _SYNC
                if not line.sent:
                    continue
                if not between:
                    line.sent[0].results.append(result)
                else:
                    self._answer(line, line.sent.popleft())
        except psycopg.Error as error:
            self._lose(line, error)

    def _answer(self, line: _Line, sent: _Sent) -> None:
        sent.timer.cancel()
        failed = next((one for one in sent.results if one.status == _FAILED), None)
        if failed is None:
            if not sent.answer.done():
                result = sent.results[-1]
                line.reading.set_pgresult(result)
                sent.answer.set_result(line.reading.load_rows(0, result.ntuples, tuple))
            return
        error = error_from_result(failed)
        if sent.prepares is not None and failed is sent.results[0]:
            # Not where only the execution failed: what is prepared stays, whatever becomes of the transaction.
            line.prepared.discard(sent.prepares)
        if not sent.answer.done():
            sent.answer.set_exception(error)
        if error.sqlstate in _STALE_PLAN:
            # A schema that changed below a prepared statement: the next connection prepares anew.
            self._lose(line, error)

    def _lose(self, line: _Line, error: psycopg.Error) -> None:
        """The connection is over: whoever waits for it hears so."""
        if line.lost:
            # Its descriptor may be another connection's by now.
            return
        line.lost = True
        if self._line is line:
            self._line = None
        loop = asyncio.get_running_loop()
        loop.remove_reader(line.fd)
        if line.writing:
            loop.remove_writer(line.fd)
        line.wire.finish()
        while line.sent:
            sent = line.sent.popleft()
            sent.timer.cancel()
            if not sent.answer.done():
                lost = error if isinstance(error, psycopg.OperationalError) else psycopg.OperationalError(str(error))
                sent.answer.set_exception(lost)


def _parameters(statement: Numbered, values: Mapping[str, str | bytes | None]) -> tuple[list[bytes | None], list[int] | None]:
    parameters: list[bytes | None] = []
    formats: list[int] | None = None
    for place, name in enumerate(statement.order):
        value = values[name]
        if isinstance(value, bytes):
            formats = formats or [0] * len(statement.order)
            formats[place] = 1
        elif value is not None:
            if "\0" in value:
                raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            value = value.encode()
        parameters.append(value)
    return parameters, formats

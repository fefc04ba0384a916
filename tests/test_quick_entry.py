"""The short ways of the HTTP face lead where the framework's long ones do: routes, headers, the log's line, joined writes."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, redirect_stderr
from typing import Any, cast

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from deedbox import telemetry
from deedbox.cli.listening import MOST_HELD, ApiServer, JoinedWrites
from deedbox.extend.registry import App
from deedbox.http import body
from deedbox.http.app import make_app
from deedbox.http.body import read_bytes
from deedbox.http.deps import HttpDeps
from deedbox.http.entry import Face, Table
from deedbox.http.headers import header_values
from deedbox.model.errors import DeedboxError

NOTHING: Any = None


def face() -> Face:
    """The application over nothing: good for its routes."""
    deps = HttpDeps(
        app=App(),
        intake=NOTHING,
        views=NOTHING,
        resolve_key=NOTHING,
        verbs=NOTHING,
        approvals=NOTHING,
        rounds=NOTHING,
        lanes=NOTHING,
        policies=NOTHING,
        alerts=NOTHING,
        targets=NOTHING,
        public_url="http://127.0.0.1",
    )
    return cast("Face", make_app(deps))


ROUTES = face().router.routes
WORDS = sorted({part for route in ROUTES for part in cast("Route", route).path.split("/") if not part.startswith("{")})
PARTS = st.sampled_from([*WORDS, "", "x", "a b", "a\n", "jobs\n", "%2F", "{job_id}", "ü"])
# Any path, and paths of routes in which what is named and at most one part more is something else.
PATHS = st.one_of(
    st.lists(PARTS, max_size=6).map(lambda parts: "/" + "/".join(parts)),
    st.tuples(st.sampled_from([cast("Route", route).path for route in ROUTES]), PARTS, st.integers(1, 9), PARTS).map(
        lambda made: "/".join(
            made[3] if place == made[2] else made[1] if part.startswith("{") else part
            for place, part in enumerate(made[0].split("/"))
        )
    ),
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(PATHS)
@example("/api/jobs//events")
@example("/api/jobs/")
def test_the_table_finds_what_the_router_would_find(path: str) -> None:
    found = Table(ROUTES).find(path)
    for route in ROUTES:
        match, child = route.matches({"type": "http", "method": "GET", "path": path, "headers": []})
        if match is Match.FULL:
            assert found is None or found == (child["endpoint"], child["path_params"])
            return
    assert found is None


def test_every_route_of_ours_is_in_the_table() -> None:
    table = Table(ROUTES)
    for route in ROUTES:
        assert isinstance(route, Route)
        assert table.find(route.path.replace("{", "a-").replace("}", "")) is not None, route.path


NAMES = st.sampled_from([b"accept", b"prefer", b"content-type", b"x"])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(NAMES, st.binary(max_size=5)), max_size=6))
def test_headers_are_those_of_the_framework(sent: list[tuple[bytes, bytes]]) -> None:
    request = Request({"type": "http", "headers": sent})
    for name in ("Accept", "prefer", "Content-Type", "absent"):
        assert header_values(request, name) == request.headers.getlist(name)


@contextmanager
def written() -> Generator[io.StringIO]:
    """What is logged on standard error; the logging is set up inside, as at the start of a process."""
    with redirect_stderr(io.StringIO()) as error:
        try:
            yield error
        finally:
            structlog.reset_defaults()
            telemetry.log.cache_clear()


@pytest.mark.parametrize("job_id", [None, "0197f2a8-0000-7000-8000-00000000b001"])
def test_the_line_of_a_request_is_that_of_the_logger(job_id: str | None) -> None:
    job = {} if job_id is None else {"job_id": job_id}
    with written() as said:
        telemetry.configure_logging("info")
        telemetry.log_request("GET", '/api/"ü"\n/{job_id}', 202, 1.5, job_id)
        telemetry.log("http").info("request", method="GET", route='/api/"ü"\n/{job_id}', status=202, duration_ms=1.5, **job)
    lines = said.getvalue().splitlines()
    stamps = [json.loads(line)["timestamp"] for line in lines]
    assert all(stamp[10] == "T" and stamp[-1] == "Z" for stamp in stamps)
    assert len(lines) == 2
    assert lines[0].replace(stamps[0], "") == lines[1].replace(stamps[1], "")


def test_the_line_of_a_request_obeys_the_level_and_whoever_takes_over() -> None:
    with written() as said:
        telemetry.configure_logging("warning")
        telemetry.log_request("GET", "/", 200, 1.0, None)
        assert said.getvalue() == ""
        telemetry.configure_logging("info")
        with structlog.testing.capture_logs() as lines:
            telemetry.log_request("GET", "/", 200, 1.0, None)
        assert [(line["event"], line["route"]) for line in lines] == [("request", "/")]
        assert said.getvalue() == ""
        telemetry.log_request("GET", "/", 200, 1.0, None)
        assert said.getvalue().count("\n") == 1


class Recorder(asyncio.Transport):
    """Keeps what is written and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


def test_writes_of_one_turn_of_the_loop_are_sent_in_one_piece_and_in_order() -> None:
    async def main() -> None:
        recorder = Recorder()
        transport = JoinedWrites(recorder)
        transport.write(b"head")
        transport.write(b"body")
        assert recorder.written == []
        await asyncio.sleep(0)
        assert recorder.written == [b"headbody"]
        transport.write(b"a" * (MOST_HELD - 1))
        assert len(recorder.written) == 1
        transport.write(b"b")
        assert len(recorder.written[1]) == MOST_HELD
        transport.write(b"last")
        transport.close()
        assert (recorder.written[2:], transport.is_closing()) == ([b"last"], True)
        transport.write(b"too late")
        await asyncio.sleep(0)
        assert len(recorder.written) == 3

    asyncio.run(main())


@asynccontextmanager
async def serving(app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> AsyncGenerator[int]:
    """A port at which our server serves an application."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ApiServer(app)
        running = asyncio.create_task(server.serve([listener]))
        await server.ready.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


def test_an_answer_is_whole_also_where_the_connection_ends_with_it() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"300000")]})
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"y" * 200_000})

    async def main() -> None:
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert body == b"x" * 100_000 + b"y" * 200_000
            writer.close()

    asyncio.run(main())


def test_a_stream_feels_that_its_reader_is_slow() -> None:
    chunk, many = b"x" * (1 << 14), 1 << 13
    sent = 0

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(many):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            sent += 1
        await send({"type": "http.response.body"})

    async def main() -> None:
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await reader.readexactly(1000)
            assert 0 < sent < many // 2
            rest = await reader.read()
            assert len(rest) > len(chunk) * many - 1000
            assert sent == many
            writer.close()

    asyncio.run(main())


class Incoming:
    """Hands over messages, each once it may come, and says whether it was given up while it waited."""

    def __init__(self, *messages: dict[str, Any], at_once: bool) -> None:
        self._messages = list(messages)
        self._at_once = at_once
        self.waits = asyncio.Event()
        self.go = asyncio.Event()
        self.given_up = False

    async def __call__(self) -> dict[str, Any]:
        if not self._at_once:
            self.waits.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.given_up = True
                raise
            # Again, so that it waits more than once.
            await asyncio.sleep(0)
        return self._messages.pop(0)


def part_of(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def body_of(incoming: Incoming, limit: int = 100) -> "asyncio.Task[bytes]":
    request = Request({"type": "http", "headers": [(b"host", b"x")]}, cast("Receive", incoming))
    return asyncio.create_task(read_bytes(request, limit))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("pieces", [[b""], [b"whole"], [b"in ", b"", b"pieces"]])
def test_a_body_is_read_whole_however_it_arrives(pieces: list[bytes], *, at_once: bool) -> None:
    messages = [part_of(piece, more=number < len(pieces)) for number, piece in enumerate(pieces, 1)]

    async def main() -> None:
        incoming = Incoming(*messages, at_once=at_once)
        reading = body_of(incoming, limit=len(b"".join(pieces)))
        incoming.go.set()
        assert await reading == b"".join(pieces)
        if pieces != [b""]:
            incoming = Incoming(*messages, at_once=at_once)
            reading = body_of(incoming, limit=len(b"".join(pieces)) - 1)
            incoming.go.set()
            with pytest.raises(DeedboxError, match=f"at most {len(b''.join(pieces)) - 1} bytes") as refused:
                await reading
            assert refused.value.code == "body_too_large"
        incoming = Incoming(*messages[:-1], {"type": "http.disconnect"}, at_once=at_once)
        reading = body_of(incoming)
        incoming.go.set()
        with pytest.raises(ClientDisconnect):
            await reading

    asyncio.run(main())


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        incoming = Incoming(part_of(b"late", more=False), at_once=False)
        reading = body_of(incoming)
        await incoming.waits.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert incoming.given_up
        monkeypatch.setattr(body, "ARRIVES_WITHIN_S", 0.01)
        incoming = Incoming(part_of(b"late", more=False), at_once=False)
        with pytest.raises(DeedboxError, match="did not arrive") as refused:
            await body_of(incoming)
        assert (refused.value.code, incoming.given_up) == ("invalid_json", True)

    asyncio.run(main())

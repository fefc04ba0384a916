"""A local OpenAI-compatible endpoint that answers by script and remembers what it was sent.

    with OpenAiEndpoint(["prose", "valid"], valid={"priority": "high"}) as server:
        ...  # server.base_url, server.requests

One item of the script per request, the last one for ever. An item is a name of `BEHAVIOURS`, an HTTP status, a Reply, or a
function of the request. A request that asks for a stream gets the same answer in pieces; a test may hold them back.
`calls_of` makes an answer that calls tools.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from uuid import uuid4

ANSWERED_AT = "Wed, 21 Oct 2026 07:28:00 GMT"
HALF_A_MINUTE_LATER = "Wed, 21 Oct 2026 07:28:30 GMT"
RETRY_AFTER_S = 7
HTTP_OK = 200


@dataclass(frozen=True)
class Reply:
    """One answer. `content` becomes the assistant's message; `body` replaces the whole JSON body, `raw` even the bytes."""

    content: Any = None
    finish_reason: str = "stop"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    raw: bytes | None = None
    hang: bool = False
    drop: bool = False
    calls: tuple[tuple[str, Any], ...] = ()
    """Tools to call: name and arguments, which are sent as they are where they are text."""
    usage: tuple[int, int] = (11, 5)
    wait_s: float = 0.0
    """Latency before the first byte."""
    pieces: int = 8
    """Into how many pieces the content is cut where it is streamed."""
    cut_stream: bool = False
    """Whether a stream breaks off in its middle."""


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived: header names in lower case, the body parsed and as text."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    text: str

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were offered."""
        return [str(tool["function"]["name"]) for tool in self.body.get("tools", [])]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What tools have answered, as the model is told it."""
        return [json.loads(message["content"]) for message in self.body["messages"] if message["role"] == "tool"]

    @property
    def prompt(self) -> str:
        """All messages of the request as one text."""
        return "\n".join(str(message["content"]) for message in self.body.get("messages", []))


@dataclass(frozen=True)
class Sample:
    """The good answer, and the fields of it that are spoiled."""

    valid: dict[str, Any]
    enum_field: str
    text_field: str

    @property
    def good(self) -> str:
        """The good answer as JSON."""
        return json.dumps(self.valid)

    def spoiled(self, name: str, value: object) -> Reply:
        """The good answer with one field changed."""
        return Reply(json.dumps({**self.valid, name: value}))


class OpenAiEndpoint:
    """The server. `valid` is the object the well-formed behaviours answer; the spoiling ones change one field of it.

    `enum_field` is what `wrong_enum` spoils and `text_field` what `too_long`, `nul` and `surrogate` spoil. `model` is the
    name it answers with. `hanging` is set when a request begins to hang; leaving the block lets it go.
    """

    def __init__(
        self,
        script: "Sequence[Item]",
        *,
        valid: Mapping[str, Any],
        enum_field: str = "priority",
        text_field: str = "subject",
        model: str = "tiny-instruct-1",
    ) -> None:
        """Prepare the script; an unknown name raises KeyError here rather than in the server's thread."""
        sample = Sample(dict(valid), enum_field, text_field)
        self._model = model
        self._script = [_reply(item, sample) for item in script]
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.hanging = threading.Event()
        self.let_on = threading.Event()
        self.let_on.set()
        self._steps = threading.Semaphore(0)
        self._at_once = 0
        self.most_at_once = 0
        self.requests: list[Recorded] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        """Start to serve; the socket has been listening since the constructor."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what hangs and stop."""
        self._released.set()
        self.let_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def let_through(self, pieces: int) -> None:
        """While `let_on` is not set: let so many pieces of a stream through."""
        self._steps.release(pieces)

    def _wait_for_piece(self) -> None:
        while not self.let_on.is_set():
            if self._steps.acquire(timeout=0.02):
                return

    def _under_way(self, change: int) -> None:
        with self._lock:
            self._at_once += change
            self.most_at_once = max(self.most_at_once, self._at_once)

    def _next(self, request: Recorded) -> Reply:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        item = self._script[min(number, len(self._script) - 1)]
        return item(request) if callable(item) else item

    def _body(self, reply: Reply) -> bytes:
        if reply.raw is not None:
            return reply.raw
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        if reply.status >= 400:
            return json.dumps({"error": {"message": f"scripted {reply.status}", "type": "scripted"}}).encode()
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": self._model,
                "choices": [{"index": 0, "message": _message(reply), "finish_reason": _reason(reply)}],
                "usage": _usage(reply),
            }
        ).encode()

    def _chunks(self, reply: Reply) -> Iterator[bytes]:
        """The answer as server-sent events."""
        message = _message(reply)
        text = message.pop("content") or ""
        size = max(1, -(-len(text) // reply.pieces))
        parts: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        parts += [{"content": text[start : start + size]} for start in range(0, len(text), size)]
        if reply.calls:
            parts.append({"tool_calls": [{"index": number, **call} for number, call in enumerate(message["tool_calls"])]})
        for number, delta in enumerate(parts):
            if reply.cut_stream and number > len(parts) // 2:
                return
            yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        yield self._chunk([{"index": 0, "delta": {}, "finish_reason": _reason(reply)}])
        yield self._chunk([], usage=_usage(reply))
        yield b"data: [DONE]\n\n"

    def _chunk(self, choices: list[Any], **more: Any) -> bytes:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self._model}
        return b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"

    def _stream(self, on: BaseHTTPRequestHandler, reply: Reply) -> None:
        on.send_response_only(HTTP_OK)
        on.send_header("Content-Type", "text/event-stream")
        on.send_header("Connection", "close")
        on.end_headers()
        for chunk in self._chunks(reply):
            self._wait_for_piece()
            on.wfile.write(chunk)
            on.wfile.flush()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint._under_way(1)
                try:
                    self._answer()
                finally:
                    endpoint._under_way(-1)

            def _answer(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Recorded(self.path, headers, json.loads(text), text)
                reply = endpoint._next(request)
                if reply.hang:
                    endpoint.hanging.set()
                    endpoint._released.wait()
                if reply.hang or reply.drop:
                    self.close_connection = True
                    return
                if reply.wait_s:
                    endpoint._released.wait(reply.wait_s)
                if request.streamed and reply.status == HTTP_OK and reply.raw is None and reply.body is None:
                    self.close_connection = True
                    endpoint._stream(self, reply)
                    return
                body = endpoint._body(reply)
                self.send_response_only(reply.status)
                for name, value in {"Date": ANSWERED_AT, "Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
                """Tests look at `requests`, not at a log."""

        return Handler


def calls_of(*calls: tuple[str, Any], **more: Any) -> Reply:
    """An answer that calls tools: names and arguments."""
    return Reply(None, "tool_calls", calls=calls, **more)


def _message(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content, **reply.extra}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{uuid4().hex[:12]}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for name, given in reply.calls
        ]
    return message


def _reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls and reply.finish_reason == "stop" else reply.finish_reason


def _usage(reply: Reply) -> dict[str, int]:
    asked, answered = reply.usage
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


Item = str | int | Reply | Callable[[Recorded], Reply]
"""What stands in a script."""


def _reply(item: Item, sample: Sample) -> Reply | Callable[[Recorded], Reply]:
    if isinstance(item, Reply) or callable(item):
        return item
    return Reply(status=item) if isinstance(item, int) else BEHAVIOURS[item](sample)


BEHAVIOURS: dict[str, Callable[[Sample], Reply]] = {
    "valid": lambda s: Reply(s.good),
    "prose": lambda _: Reply("I would say that this is rather urgent, and somebody should call the customer."),
    "fenced": lambda s: Reply(f"```json\n{s.good}\n```"),
    "surrounded": lambda s: Reply(f"Sure, here is the {{object}}:\n\n{s.good}\n\nAnything else?"),
    "reasoning": lambda s: Reply(f'<think>Is it {{"priority": "low"}}? No.</think>\n{s.good}'),
    "reasoning_field": lambda s: Reply(s.good, extra={"reasoning_content": 'Perhaps {"priority": "low"}.'}),
    "blocks": lambda s: Reply([{"type": "text", "text": s.good[:9]}, {"type": "text", "text": s.good[9:]}]),
    "cut_off": lambda s: Reply(s.good[:-4], finish_reason="length"),
    "wrong_enum": lambda s: s.spoiled(s.enum_field, "whenever"),
    "too_long": lambda s: s.spoiled(s.text_field, "long " * 4000),
    "nul": lambda s: s.spoiled(s.text_field, "a\x00b"),
    "surrogate": lambda s: s.spoiled(s.text_field, "a\ud800b"),
    "empty": lambda _: Reply(""),
    "refusal": lambda _: Reply(None, extra={"refusal": "I cannot help with that."}),
    "rate_limited": lambda _: Reply(status=429, headers={"Retry-After": str(RETRY_AFTER_S)}),
    "rate_limited_date": lambda _: Reply(status=429, headers={"Retry-After": HALF_A_MINUTE_LATER}),
    "hang": lambda _: Reply(hang=True),
    "drop": lambda _: Reply(drop=True),
    "not_json": lambda _: Reply(raw=b"<html>a proxy says hello</html>"),
    "no_choices": lambda _: Reply(body={"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
}

"""A local OpenAI-compatible endpoint that answers by script and remembers what it was sent.

    with OpenAiEndpoint(["prose", "valid"], valid={"priority": "high"}) as server:
        ...  # server.base_url, server.requests

One item of the script per request, the last one for ever. An item is a name of `BEHAVIOURS`, an HTTP status, or a Reply.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

ANSWERED_AT = "Wed, 21 Oct 2026 07:28:00 GMT"
HALF_A_MINUTE_LATER = "Wed, 21 Oct 2026 07:28:30 GMT"
RETRY_AFTER_S = 7


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


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived: header names in lower case, the body parsed and as text."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    text: str

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
        script: Sequence[str | int | Reply],
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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, request: Recorded) -> Reply:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        return self._script[min(number, len(self._script) - 1)]

    def _body(self, reply: Reply) -> bytes:
        if reply.raw is not None:
            return reply.raw
        if reply.body is not None:
            return json.dumps(reply.body).encode()
        if reply.status >= 400:
            return json.dumps({"error": {"message": f"scripted {reply.status}", "type": "scripted"}}).encode()
        message = {"role": "assistant", "content": reply.content, **reply.extra}
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": self._model,
                "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
            }
        ).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = endpoint._next(Recorded(self.path, headers, json.loads(text), text))
                if reply.hang:
                    endpoint.hanging.set()
                    endpoint._released.wait()
                if reply.hang or reply.drop:
                    self.close_connection = True
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


def _reply(item: str | int | Reply, sample: Sample) -> Reply:
    if isinstance(item, Reply):
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

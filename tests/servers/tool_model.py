"""A stand-in for a model that uses tools: OpenAI-compatible, on loopback, and as plain as a script.

It calls the tool that it is made for, asks with `get_job` where the answer is pending and it has that tool, and then says what
it was told. It may call twice at once, as some models do.
"""

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_JOB = re.compile(r'\\*"job_id\\*":\s*\\*"([0-9a-f-]{36})')
_STATUS = re.compile(r'\\*"status\\*":\s*\\*"(success|error|pending)')
_PYTHON_JOB = re.compile(r"'job_id': '([0-9a-f-]{36})'")
_PYTHON_STATUS = re.compile(r"'status': '(success|error|pending)'")


@dataclass
class ToolModel:
    """The endpoint; `seen` are the requests' bodies, `doubles` makes it call its tool twice in one turn."""

    tool: str
    arguments: Mapping[str, Any]
    doubles: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __post_init__(self) -> None:
        """Listen; answer once the block is entered."""
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.seen.append(body)
                sent = json.dumps(model.answer(body)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the library's name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def offered(self) -> list[str]:
        """The tools that it was offered."""
        return sorted(one["function"]["name"] for one in self.seen[0].get("tools", []))

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The next message."""
        told = [json.dumps(one["content"]) for one in body["messages"] if one["role"] == "tool"]
        if not told:
            return _calls([(self.tool, self.arguments)] * (2 if self.doubles else 1))
        last = told[-1]
        status, job = _STATUS.search(last) or _PYTHON_STATUS.search(last), _JOB.search(last) or _PYTHON_JOB.search(last)
        offered = {one["function"]["name"] for one in body.get("tools", [])}
        if status is not None and status[1] == "pending" and job is not None and "get_job" in offered:
            return _calls([("get_job", {"job_id": job[1], "wait_s": 10})])
        return _message({"role": "assistant", "content": f"It came to this: {last}"}, "stop")


def _calls(calls: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    made = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(dict(arguments))}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return _message({"role": "assistant", "content": None, "tool_calls": made}, "tool_calls")


def _message(message: Mapping[str, Any], why: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "stand-in",
        "choices": [{"index": 0, "message": dict(message), "finish_reason": why}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }

"""What stands outside, as one process: a Hermes that drafts (an API server and a webhook), and the desk that holds the mails.

`python -m examples.hermes_handoff.neighbours` prints its two ports as JSON and serves until it is ended. It stands in for the
real ones: Hermes' words come from a template, everything else is as on the wire. Secrets come by the environment.
"""

import json
import os
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from deedbox.connectors.signing import BadSignatureError, verify

MAILS = {
    "late-parcel": {"from": "zoe.brandt@example.org", "text": "My parcel is three days late. Where is it?"},
    "wrong-size": {"from": "noor.haddad@example.org", "text": "The shoes are too small. May I send them back?"},
}


@dataclass
class Seen:
    """What the two were asked to do."""

    chats: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    hooks: dict[str, Any] = field(default_factory=dict[str, Any])
    refused: int = 0
    answers: list[int] = field(default_factory=list[int])
    replies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


SEEN = Seen()


def draft_for(text: str) -> dict[str, str]:
    """Hermes' words."""
    about = text.strip().splitlines()[-1]
    return {"subject": "Your mail", "body": f"Thank you for writing. We have looked into it: {about[:200]}"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, status: int, body: Any) -> None:
        """Answer with JSON."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def read(self) -> bytes:
        """The body as it came."""
        return self.rfile.read(int(self.headers.get("content-length", "0")))

    def bearer(self, name: str) -> bool:
        """Whether the caller holds the key that the environment names."""
        return self.headers.get("authorization") == f"Bearer {os.environ[name]}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        """Say nothing."""


class Hermes(_Handler):
    """An agent's own API server, and its webhook."""

    def do_POST(self) -> None:
        """Draft at once for the API; take note and answer later for the webhook."""
        content = self.read()
        if self.path == "/v1/chat/completions":
            self._chat(content)
        elif self.path == "/hooks/draft":
            self._hook(content)
        else:
            self.say(404, {"error": "there is nothing here"})

    def _chat(self, content: bytes) -> None:
        if not self.bearer("HERMES_API_KEY"):
            SEEN.refused += 1
            self.say(401, {"error": "no key"})
            return
        asked = json.loads(content)
        SEEN.chats.append({"body": content.decode(), "key": self.headers.get("idempotency-key")})
        text = "```json\n" + json.dumps(draft_for(asked["messages"][-1]["content"])) + "\n```"
        self.say(
            200,
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": "hermes-agent",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020},
            },
        )

    def _hook(self, content: bytes) -> None:
        try:
            event = verify((os.environ["HERMES_HOOK_SECRET"],), dict(self.headers.items()), content)
        except BadSignatureError:
            SEEN.refused += 1
            self.say(401, {"error": "not signed"})
            return
        new = event not in SEEN.hooks
        SEEN.hooks[event] = json.loads(content)
        self.say(202, {"id": event})
        if new:
            threading.Thread(target=answer_later, args=(event, SEEN.hooks[event]), daemon=True).start()


def answer_later(event: str, handed: dict[str, Any]) -> None:
    """Hand the draft in with Hermes' own key, under the id of the webhook; twice, as a nervous client does."""
    body = json.dumps({"mail_id": handed["mail_id"], **draft_for(handed["text"])}).encode()
    headers = {
        "Authorization": f"Bearer {os.environ['HERMES_DEEDBOX_KEY']}",
        "Content-Type": "application/json",
        "Idempotency-Key": event,
    }
    url = f"{os.environ['DEEDBOX_URL']}/api/actions/{handed['answer_with']}/jobs"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(2):
        for _try in range(50):
            try:
                with opener.open(urllib.request.Request(url, body, headers), timeout=20) as answer:  # noqa: S310 -- our own URL
                    SEEN.answers.append(answer.status)
                break
            except OSError:
                time.sleep(0.2)


class Desk(_Handler):
    """Holds the mails and takes the replies."""

    def do_GET(self) -> None:
        """One mail, or what was seen of everything."""
        if self.path == "/seen":
            self.say(200, SEEN.__dict__)
            return
        mail = MAILS.get(self.path.removeprefix("/mails/"))
        if not self.bearer("DESK_TOKEN"):
            self.say(401, {"error": "no key"})
        elif mail is None:
            self.say(404, {"error": "no such mail"})
        else:
            self.say(200, mail)

    def do_POST(self) -> None:
        """Take a reply."""
        reply = json.loads(self.read())
        if self.path != "/replies" or not self.bearer("DESK_TOKEN"):
            self.say(401, {"error": "no key"})
            return
        SEEN.replies.append(reply)
        self.say(201, {"id": f"reply-{len(SEEN.replies)}"})


def main() -> None:
    """Serve both."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Hermes, Desk)]
    print(json.dumps({"hermes": servers[0].server_port, "desk": servers[1].server_port}), flush=True)
    threading.Thread(target=servers[1].serve_forever, daemon=True).start()
    servers[0].serve_forever()


if __name__ == "__main__":
    main()

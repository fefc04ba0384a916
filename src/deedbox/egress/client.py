"""The one client for outgoing HTTP: it says of every failure whether the request may have arrived."""

import asyncio
import math
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import httpcore2
import httpx2

from deedbox.egress.address import EgressPolicy
from deedbox.egress.failures import MaybeSent, NotSent
from deedbox.egress.transport import GuardedTransport, check_url, connections, core_url

DEFAULT_CAP = 1024 * 1024  # bytes
_MODEL_CAP = 16 * 1024 * 1024  # bytes; an answer of a model is text
IDLE_S = 0.5
"""How long a connection may wait for the next request, in seconds: the least patient servers wait for two."""
_MODEL_IDLE_S = 5.0
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_METHOD = re.compile(r"[A-Z]{1,20}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Header names are lower-case; repeated headers are joined by a comma."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Progress:
    """How far one exchange got, told by the HTTP library as it goes.

    From `send_request_headers.started` on a byte may have left; before it, none has.
    """

    def __init__(self) -> None:
        self.left = False
        self.phase = "connect"

    async def seen(self, name: str, _info: Mapping[str, Any]) -> None:
        event = name.partition(".")[2]
        if event == "start_tls.started":
            self.phase = "tls"
        elif event == "send_request_headers.started":
            self.left = True
            self.phase = "request_headers"
        elif event == "send_request_body.started":
            self.phase = "request_body"
        elif event == "receive_response_headers.started":
            self.phase = "response_headers"

    def fail(self, code: str, what: str, cause: Exception | None) -> NoReturn:
        """Raise the failure that fits how far it got."""
        if self.left:
            raise MaybeSent(code, f"{what} after the request had left.", phase=self.phase) from cause
        raise NotSent(code, f"{what} before the request left.", phase=self.phase) from cause


class EgressClient:
    """Sends single requests to places the policy allows.

    No redirect is followed, no proxy or password is taken from the environment, and nothing is tried again. A connection is
    used again only at once, while the other side surely keeps it: one gone stale would look like a request that was lost.
    """

    def __init__(self, policy: EgressPolicy, *, tls: ssl.SSLContext | None = None, user_agent: str = "deedbox") -> None:
        """`tls` replaces the system's trust, for a private certificate authority."""
        self._connections = connections(policy, tls, idle_s=IDLE_S)
        self._user_agent = user_agent

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        deadline_s: float,
        cap: int = DEFAULT_CAP,
    ) -> Answer:
        """One exchange within `deadline_s` seconds, name resolution, TLS and the answer's last byte included.

        Raises EgressRefused (final), NotSent (nothing left) and MaybeSent (anything after the first byte of the request
        left: time-out, reset, an answer over `cap` bytes or one that cannot be read). Any status is an answer. Raises
        ValueError for a method, header or deadline that no caller should pass.
        """
        if not _METHOD.fullmatch(method):
            raise ValueError(f"method: {method!r} is not one")
        if not math.isfinite(deadline_s):
            raise ValueError("deadline_s: must be finite")
        for name, value in (headers or {}).items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"header: {name!r} or its value cannot be sent")
        parsed = check_url(url)
        progress = _Progress()
        # identity: a compressed answer could be small under the cap and huge once opened.
        sent = {"Host": parsed.netloc.decode("ascii"), "User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        sent |= headers or {}
        if content is not None or method in _WITH_BODY:
            sent["Content-Length"] = str(len(content or b""))
        request = httpcore2.Request(
            method,
            core_url(parsed),
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in sent.items()],
            content=content,
            extensions={"trace": progress.seen, "timeout": {"connect": deadline_s}},
        )
        try:
            async with asyncio.timeout(deadline_s):
                return await self._exchange(request, progress, cap)
        except TimeoutError as error:
            progress.fail("deadline", "The call's time was over", error)
        except (httpcore2.TimeoutException, httpcore2.NetworkError) as error:
            progress.fail("connection_lost", "The connection failed", error)
        except (httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            progress.fail("unreadable_answer", "The answer could not be read as HTTP", error)

    async def _exchange(self, request: httpcore2.Request, progress: _Progress, cap: int) -> Answer:
        async with self._connections.lent(request.url.origin) as connection:
            response = await connection.handle_async_request(request)
            try:
                progress.phase = "response_body"
                names = _names(response.headers)
                if names.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
                    progress.fail("unreadable_answer", "A compressed answer came unasked", None)
                body = bytearray()
                async for part in response.aiter_stream():
                    body += part
                    if len(body) > cap:
                        progress.fail("answer_too_large", f"The answer went over {cap} bytes", None)
            finally:
                await response.aclose()
        return Answer(response.status, names, bytes(body))

    async def aclose(self) -> None:
        """Close what is open."""
        await self._connections.aclose()


def _names(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Headers as an answer shows them; bytes outside ASCII are kept as the characters of Latin-1."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return MappingProxyType(found)


def async_http_client(policy: EgressPolicy, timeout_s: float, *, tls: ssl.SSLContext | None = None) -> httpx2.AsyncClient:
    """A guarded `httpx2.AsyncClient` for SDKs that bring their own calls (openai, pydantic-ai).

    Same checks as EgressClient: no redirects, no environment, nothing tried again. One exchange takes at most
    `timeout_s` seconds to its last byte. The caller closes it. EgressRefused and NotSent come out as they are or
    wrapped, as the SDK likes; `failure_in` finds them either way.
    """
    return httpx2.AsyncClient(
        transport=GuardedTransport(policy, tls=tls, total_s=timeout_s, cap=_MODEL_CAP, idle_s=_MODEL_IDLE_S),
        timeout=httpx2.Timeout(timeout_s),
        trust_env=False,
        follow_redirects=False,
    )

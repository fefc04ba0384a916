"""The HTTP transport under every outgoing call: URLs checked, addresses checked and pinned, answers bounded."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import lru_cache, partial
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

import httpcore2
import httpx2

from deedbox.egress.address import EgressPolicy, parse_host
from deedbox.egress.connections import Connections, OneWrite
from deedbox.egress.dial import connect_first, resolve
from deedbox.egress.failures import EgressRefused, NotSent

CONNECT_S = 30.0  # seconds for resolving and connecting where the caller set no limit of its own
_BAD_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_ERRORS: tuple[tuple[type[Exception], type[httpx2.TransportError]], ...] = (
    # The most specific first: the first that fits is taken.
    (httpcore2.ConnectTimeout, httpx2.ConnectTimeout),
    (httpcore2.ReadTimeout, httpx2.ReadTimeout),
    (httpcore2.WriteTimeout, httpx2.WriteTimeout),
    (httpcore2.PoolTimeout, httpx2.PoolTimeout),
    (httpcore2.TimeoutException, httpx2.ReadTimeout),
    (httpcore2.ConnectError, httpx2.ConnectError),
    (httpcore2.ReadError, httpx2.ReadError),
    (httpcore2.WriteError, httpx2.WriteError),
    (httpcore2.NetworkError, httpx2.NetworkError),
    (httpcore2.LocalProtocolError, httpx2.LocalProtocolError),
    (httpcore2.ProtocolError, httpx2.RemoteProtocolError),
    (httpcore2.UnsupportedProtocol, httpx2.UnsupportedProtocol),
)


@contextmanager
def _as_httpx() -> Generator[None]:
    """Give callers the exceptions of the library they know; ours pass unchanged."""
    try:
        yield
    except Exception as error:
        for core, ours in _ERRORS:
            if isinstance(error, core):
                raise ours(str(error)) from error
        raise


@lru_cache(maxsize=1024)
def check_url(url: str) -> httpx2.URL:
    """The parsed URL, or EgressRefused for one that is not plain http(s) to a plain host.

    Refused are other schemes, userinfo, blanks, control characters and backslashes anywhere, and the odd spellings of
    addresses that `parse_host` refuses.
    """
    if _BAD_IN_URL.search(url):
        raise EgressRefused("The URL has a blank, a control character or a backslash in it.")
    try:
        split = urlsplit(url)
        parsed = httpx2.URL(url)
        port = split.port
    except (ValueError, httpx2.InvalidURL):
        raise EgressRefused("The URL cannot be read.") from None
    if parsed.scheme not in {"http", "https"}:
        raise EgressRefused("Only http and https URLs can be reached.")
    if parsed.userinfo or "@" in split.netloc:
        raise EgressRefused("A URL with a user name or a password in it is refused.")
    host = parsed.raw_host.decode("ascii")
    if not split.netloc.isascii():
        raise EgressRefused("A host name outside ASCII is refused; write its xn-- form.")
    if port == 0:
        raise EgressRefused("The URL has no usable port.")
    if (split.hostname or "") != host.lower():
        # Two parsers that disagree about the host are how such checks are got round.
        raise EgressRefused("The host of the URL can be read in two ways.")
    parse_host(host)
    return parsed


class _PinnedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections to checked addresses only; TLS and the Host header keep the name."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        # The library types this class as empty where anyio may be missing; here anyio is always there.
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        until = monotonic() + (CONNECT_S if timeout is None else timeout)
        try:
            async with asyncio.timeout(until - monotonic()):
                addresses = await resolve(host, port, self._policy)
        except TimeoutError as error:
            raise NotSent("dns_timeout", "The name was not resolved in time.", phase="resolve") from error

        async def connect(address: str) -> httpcore2.AsyncNetworkStream:
            return OneWrite(await self._inner.connect_tcp(address, port, None, local_address, socket_options))

        return await connect_first(
            addresses, until - monotonic(), connect, errors=(OSError, httpcore2.ConnectError, httpcore2.ConnectTimeout)
        )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def connections(policy: EgressPolicy, tls: ssl.SSLContext | None, *, idle_s: float) -> Connections:
    """Connections to checked addresses only; without `tls` the system's certificates are trusted."""
    system = httpx2.create_ssl_context(trust_env=False) if tls is None else tls
    return Connections(_PinnedBackend(policy), system, idle_s=idle_s)


def core_url(url: httpx2.URL) -> httpcore2.URL:
    """The same URL for the library that sends."""
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


class _BoundedStream(httpx2.AsyncByteStream):
    """An answer's bytes, up to a cap and until a moment of the monotonic clock."""

    def __init__(
        self, parts: AsyncIterable[bytes], *, cap: int | None, until: float | None, closed: Callable[[], Awaitable[None]]
    ) -> None:
        self._parts = parts
        self._closed = closed
        self._cap = cap
        self._until = until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        parts = aiter(self._parts)
        while True:
            left = None if self._until is None else self._until - monotonic()
            try:
                # The limit is set around each read and never around the yield, where the caller's own code runs.
                with _as_httpx():
                    async with asyncio.timeout(left):
                        part = await anext(parts)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise httpx2.ReadTimeout("the answer took longer than the call may take in all") from error
            total += len(part)
            if self._cap is not None and total > self._cap:
                raise httpx2.ReadError(f"the answer is longer than {self._cap} bytes")
            yield part

    async def aclose(self) -> None:
        close = getattr(self._parts, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            await self._closed()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """An httpx2 transport whose every connection passed the egress policy.

    `total_s` bounds one exchange in seconds from its start to the last byte of the answer, `cap` the bytes of the
    answer as they travel; None leaves either to the caller. Nothing is tried again. A connection is used again within
    `idle_s` seconds of its last answer, and never with zero.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        tls: ssl.SSLContext | None = None,
        total_s: float | None = None,
        cap: int | None = None,
        idle_s: float = 0.0,
    ) -> None:
        """`tls` is for a private certificate authority; by default the system's certificates are trusted."""
        self._total_s = total_s
        self._cap = cap
        self._connections = connections(policy, tls, idle_s=idle_s)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request. Raises EgressRefused and NotSent of ours, and httpx2's TransportError for the rest."""
        url = check_url(str(request.url))
        until = None if self._total_s is None else monotonic() + self._total_s
        extensions: dict[str, Any] = dict(request.extensions)
        core = httpcore2.Request(
            method=request.method,
            url=core_url(url),
            headers=request.headers.raw,
            content=cast("httpx2.AsyncByteStream", request.stream),
            extensions=extensions,
        )
        origin = core.url.origin
        kept = await self._connections.take(origin)
        give_back = partial(self._connections.give_back, origin, kept)
        try:
            with _as_httpx():
                async with asyncio.timeout(self._total_s):
                    answer = await kept.connection.handle_async_request(core)
        except BaseException as error:
            await give_back()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout("the call took longer than it may take in all") from error
            raise
        parts = cast("AsyncIterable[bytes]", answer.stream)
        stream = _BoundedStream(parts, cap=self._cap, until=until, closed=give_back)
        return httpx2.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=cast("dict[str, Any]", answer.extensions)
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._connections.aclose()

"""Names to checked addresses, and connected sockets to nothing else."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

from deedbox.egress.address import Address, EgressPolicy, check_address, parse_host
from deedbox.egress.failures import EgressRefused, NotSent

T = TypeVar("T")


async def resolve(host: str, port: int, policy: EgressPolicy) -> tuple[Address, ...]:
    """Every address of the host, each one checked, in the resolver's order.

    One refused answer refuses the host: a name that points at a public and at an inner address is an attack or a
    mistake. Raises EgressRefused, and NotSent where the name does not resolve. Takes as long as the resolver takes;
    callers bound it.
    """
    parsed = parse_host(host)
    if not isinstance(parsed, str):
        check_address(parsed, policy, port=port)
        return (parsed,)
    found = await addresses_of(parsed, port)
    for address in found:
        check_address(address, policy, host=parsed, port=port)
    return found


async def addresses_of(name: str, port: int) -> tuple[Address, ...]:
    """Every address that a name has now, unchecked. Raises EgressRefused for what is no address, NotSent for none."""
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotSent("dns_failed", f"The host {name} could not be resolved.", phase="resolve") from error
    found: dict[Address, None] = {}
    for _family, _kind, _protocol, _name, sockaddr in answers:
        try:
            found[ipaddress.ip_address(str(sockaddr[0]))] = None
        except ValueError:
            raise EgressRefused(f"The host {name} resolves to something that is not an address.") from None
    if not found:
        raise NotSent("dns_failed", f"The host {name} has no address.", phase="resolve")
    return tuple(found)


async def connect_first(
    addresses: Sequence[Address],
    deadline_s: float,
    connect: Callable[[str], Awaitable[T]],
    *,
    errors: tuple[type[Exception], ...],
) -> T:
    """What `connect` made of the first address that answered, in order, all within `deadline_s` seconds.

    Each address gets an equal share of the time that is left, so that one that swallows packets cannot use up the
    time of the next. Raises NotSent when none answered.
    """
    until = monotonic() + deadline_s
    last: Exception | None = None
    for tried, address in enumerate(addresses):
        share = (until - monotonic()) / (len(addresses) - tried)
        try:
            async with asyncio.timeout(share):
                return await connect(str(address))
        except errors as error:
            last = error
    raise NotSent("connect_failed", "The connection could not be opened.", phase="connect") from last


async def dial(host: str, port: int, policy: EgressPolicy, deadline_s: float) -> socket.socket:
    """A connected, non-blocking TCP socket to a checked address of the host, within `deadline_s` seconds in all.

    The caller owns the socket. Raises EgressRefused and NotSent; nothing has been written when it does.
    """
    loop = asyncio.get_running_loop()
    until = monotonic() + deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            addresses = await resolve(host, port, policy)
    except TimeoutError as error:
        raise NotSent("dns_timeout", "The name was not resolved in time.", phase="resolve") from error

    async def connect(address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    return await connect_first(addresses, until - monotonic(), connect, errors=(OSError,))

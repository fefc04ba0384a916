"""Which hosts and addresses may be reached, decided from the address that is really dialled.

The ranges are listed here and not taken from `ipaddress.is_private`, whose answer changed between patch releases of
Python 3.11. What is not global unicast is refused, named or not.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal

from deedbox.egress.failures import EgressRefused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Kind = Literal["internal", "special"]

# Metadata first: some of these lie inside wider ranges, and the first match names the refusal.
_METADATA = (
    "169.254.169.254/32",
    "169.254.170.2/32",
    "168.63.129.16/32",
    "100.100.100.200/32",
    "192.0.0.192/32",
    "fd00:ec2::/32",
)

_DENIED: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    ("metadata", "special", _METADATA),
    ("loopback", "internal", ("127.0.0.0/8", "::1/128")),
    ("private", "internal", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
    ("carrier-grade NAT", "internal", ("100.64.0.0/10",)),
    ("link-local", "special", ("169.254.0.0/16", "fe80::/10", "fec0::/10")),
    ("unspecified", "special", ("0.0.0.0/8", "::/128")),
    ("multicast", "special", ("224.0.0.0/4", "ff00::/8")),
    ("IPv4-mapped", "special", ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96")),
    ("NAT64", "special", ("64:ff9b::/96", "64:ff9b:1::/48")),
    ("Teredo", "special", ("2001::/32",)),
    ("6to4", "special", ("2002::/16", "192.88.99.0/24")),
    (
        "reserved",
        "special",
        (
            "192.0.0.0/24",
            "192.0.2.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
        ),
    ),
)
_TABLE: tuple[tuple[Network, str, Kind], ...] = tuple(
    (ipaddress.ip_network(block), name, kind) for name, kind, blocks in _DENIED for block in blocks
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")

_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
# A last label of this shape makes other parsers read the whole as an address: 127.1, 0x7f.1, 2130706433, 0177.0.0.1.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_MAX_HOST = 253
_MAX_PORT = 65535


def parse_host(host: str) -> str | Address:
    """The host as an address, or as a lower-case name, in the one spelling that every parser reads alike.

    Raises EgressRefused for short, hexadecimal, octal and decimal spellings of addresses, for zone ids, for names
    outside ASCII (write the `xn--` form) and for anything that is not a host name.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare:
        if "%" in bare:
            raise EgressRefused("An address with a zone id cannot be reached.")
        try:
            return ipaddress.IPv6Address(bare)
        except ValueError:
            raise EgressRefused("The host is not an address that can be read.") from None
    if bare is not host or not bare or len(bare) > _MAX_HOST:
        raise EgressRefused("The host is empty, too long or badly bracketed.")
    labels = bare.split(".")
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(bare)
        except ValueError:
            raise EgressRefused("The host is a number that different parsers read as different addresses.") from None
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRefused("The host is not a plain host name.")
    return bare.lower()


def _split_port(entry: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port`, `[v6]:port` or a bare IPv6 address."""
    if entry.startswith("["):
        bare, closed, rest = entry[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"egress allow list: {entry!r} is badly bracketed")
        host, text = bare, rest[1:] if rest else None
    elif entry.count(":") == 1:
        host, _, text = entry.partition(":")
    else:
        return entry, None
    if text is None:
        return host, None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MAX_PORT:
        raise ValueError(f"egress allow list: {entry!r} has no usable port")
    return host, int(text)


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What may be reached although it is not on the public internet.

    Each entry of `allow` is a host name, an address or a network, the first two with or without a port. A host name
    opens only internal ranges (private, loopback, carrier-grade NAT) for whatever it resolves to; link-local, metadata
    and the other special ranges open only by naming the address itself, so that a name that is made to resolve to a
    metadata service stays shut. Raises ValueError for an entry that cannot be read: a misspelt rule must not start.
    """

    allow: frozenset[str] = frozenset()
    _names: frozenset[tuple[str, int | None]] = field(init=False, repr=False, compare=False, default=frozenset())
    _networks: tuple[tuple[Network, int | None], ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        """Read every entry once."""
        names: set[tuple[str, int | None]] = set()
        networks: list[tuple[Network, int | None]] = []
        for entry in sorted(self.allow):
            if "/" in entry:
                networks.append((ipaddress.ip_network(entry), None))
                continue
            text, port = _split_port(entry)
            try:
                host = parse_host(text)
            except EgressRefused as error:
                raise ValueError(f"egress allow list: {entry!r}: {error.message}") from error
            if isinstance(host, str):
                names.add((host, port))
            else:
                networks.append((ipaddress.ip_network(host), port))
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_networks", tuple(networks))

    def names(self, host: str, port: int | None) -> bool:
        """Whether the name, at this port, is on the list."""
        return (host.lower(), None) in self._names or (port is not None and (host.lower(), port) in self._names)

    def opens(self, ip: Address, port: int | None) -> bool:
        """Whether the address itself, at this port, is on the list."""
        return any(
            network.version == ip.version and ip in network and limit in {None, port} for network, limit in self._networks
        )


def denied_range(ip: Address) -> tuple[str, Kind] | None:
    """The name and kind of the refused range an address lies in, or None for a public address."""
    for network, name, kind in _TABLE:
        if network.version == ip.version and ip in network:
            return name, kind
    if isinstance(ip, ipaddress.IPv6Address) and (ip not in _GLOBAL_V6 or ip.scope_id is not None):
        return "reserved", "special"
    return None


def check_address(ip: Address, policy: EgressPolicy, *, host: str | None = None, port: int | None = None) -> None:
    """Let a public or an allowed address pass; raise EgressRefused for any other.

    `host` is the name that resolved to `ip`, if there was one.
    """
    found = denied_range(ip)
    if found is None or policy.opens(ip, port):
        return
    name, kind = found
    if kind == "internal" and host is not None and policy.names(host, port):
        return
    where = f"The host {host}" if host is not None else f"The address {ip}"
    raise EgressRefused(f"{where} lies in a {name} range that the egress policy does not allow.")

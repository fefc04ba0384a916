"""The way out, against whatever an address can be spelt as and whatever a resolver may answer."""

import asyncio
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deedbox.egress import EgressClient, EgressPolicy, EgressRefused, NotSent, check_url, dial, parse_host
from deedbox.egress.address import Address, denied_range
from tests.guarantees import proves

T = TypeVar("T")
TLS = ssl.create_default_context()
"""Made once: reading the system's certificates takes longer than all of an example."""

V4 = ipaddress.IPv4Address
V6 = ipaddress.IPv6Address
INNER = [
    ipaddress.ip_network(block)
    for block in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
        "0.0.0.0/8",
        "224.0.0.0/4",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "168.63.129.16/32",
    )
]


@st.composite
def inner_v4(draw: st.DrawFn) -> V4:
    """An address that nobody outside should be able to make us call."""
    block = draw(st.sampled_from(INNER))
    return V4(int(block.network_address) + draw(st.integers(0, block.num_addresses - 1)))


@st.composite
def spelt_v4(draw: st.DrawFn, address: V4) -> str:
    """One of the ways in which the C library reads this address: one to four parts, each decimal, octal or hexadecimal."""
    count = draw(st.integers(1, 4))
    octets = address.packed
    parts = [*octets[: count - 1], int.from_bytes(octets[count - 1 :])]
    forms = [
        draw(st.sampled_from([str(part), f"0{part:o}", f"0x{part:x}", f"0X{part:X}", f"0x{part:08x}", f"000{part:o}"]))
        for part in parts
    ]
    return ".".join(forms) + draw(st.sampled_from(["", "."]))


@st.composite
def wrapped_v4(draw: st.DrawFn, address: V4) -> V6:
    """The address inside an IPv6 one, as translators and tunnels carry it."""
    number = int(address)
    return V6(
        draw(
            st.sampled_from(
                [
                    (0xFFFF << 32) | number,  # mapped
                    number,  # compatible
                    (0xFFFF << 48) | number,  # translated
                    (0x64FF9B << 96) | number,  # NAT64
                    (0x64FF9B0001 << 80) | number,  # NAT64, local use
                    (0x2002 << 112) | (number << 80),  # 6to4
                    (0x20010000 << 96) | (number ^ 0xFFFFFFFF),  # Teredo
                ]
            )
        )
    )


@st.composite
def spelt_v6(draw: st.DrawFn, address: V6) -> str:
    """One of the ways to write it."""
    tail = V4(int(address) & 0xFFFFFFFF)
    head = address.exploded.rsplit(":", 2)[0]
    return draw(st.sampled_from([address.compressed, address.exploded, address.exploded.upper(), f"{head}:{tail}"]))


def refused(url: str) -> None:
    """Neither reading the URL nor reaching for it may get anywhere. Nothing here resolves: every host is a number."""

    async def reach() -> None:
        client = EgressClient(EgressPolicy(), tls=TLS)
        try:
            await client.request("GET", url, deadline_s=5.0)
        finally:
            await client.aclose()

    with pytest.raises(EgressRefused):
        on(Numbers({}), reach)


# A resolver of our own -------------------------------------------------------------------------------------------------


class Numbers(asyncio.SelectorEventLoop):
    """A loop whose resolver says what it is told to, and whose connections go nowhere and are kept account of."""

    def __init__(self, answers: dict[str, list[Sequence[Address]]], *, delay_s: float = 0.0) -> None:
        super().__init__()
        self.answers = answers
        self.delay_s = delay_s
        self.asked: list[str] = []
        self.dialled: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[Any]:
        try:
            addresses: Sequence[Address] = [ipaddress.ip_address(host)]
        except ValueError:
            self.asked.append(host)
            await asyncio.sleep(self.delay_s)
            turns = self.answers[host]
            addresses = turns.pop(0) if len(turns) > 1 else turns[0]
        families = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [(families[one.version], socket.SOCK_STREAM, 6, "", (str(one), port)) for one in addresses]

    async def sock_connect(self, _sock: socket.socket, address: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.dialled.append(address[0])
        raise ConnectionRefusedError

    async def create_connection(self, _protocol: Any, host: Any = None, *_a: Any, **_options: Any) -> Any:
        self.dialled.append(str(host))
        raise ConnectionRefusedError


def on(loop: Numbers, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it on that loop."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(story())


def both(loop: Numbers, policy: EgressPolicy, host: str, *, deadline_s: float = 5.0) -> list[Exception]:
    """Reach for a host in the two ways there are; what came of each."""

    async def story() -> list[Exception]:
        client = EgressClient(policy, tls=TLS)
        ends: list[Exception] = []
        for attempt in (
            client.request("POST", f"https://{host}/x", content=b"{}", deadline_s=deadline_s),
            dial(host, 443, policy, deadline_s),
        ):
            try:
                await attempt
            except (EgressRefused, NotSent) as error:
                ends.append(error)
        await client.aclose()
        return ends

    return on(loop, story)


# Spellings -------------------------------------------------------------------------------------------------------------


@proves("G-EGRESS-FUZZ")
@settings(deadline=None)
@given(st.data())
def test_no_spelling_of_an_inner_address_gets_out(data: st.DataObject):
    address = data.draw(inner_v4())
    if data.draw(st.booleans()):
        host = data.draw(spelt_v4(address))
    else:
        host = f"[{data.draw(spelt_v6(data.draw(wrapped_v4(address))))}]"
    user = data.draw(st.sampled_from(["", "", "a@", "a:b@", "8.8.8.8@", "8.8.8.8%40", "@"]))
    port = data.draw(st.sampled_from(["", ":80", ":443", ":08080", ":", ":0", ":65536"]))
    refused(f"{data.draw(st.sampled_from(['http', 'https']))}://{user}{host}{port}/x")


LIBC = re.compile(r"[0-9a-fA-FxX.]+")


@proves("G-EGRESS-FUZZ")
@given(st.text(alphabet="0123456789abcdefxX.:[]%@-_/ \u3002\uff11", min_size=1, max_size=24))
@example("127.1")
@example("0x7f.1")
@example("1.2.3.4.")
@example("0300.0250.0.1")
@example("4294967295")
@example("0x")
@example("1.0x.1")
def test_what_we_take_for_a_name_no_c_library_takes_for_an_address(host: str):
    try:
        read = parse_host(host)
    except EgressRefused:
        return
    if isinstance(read, str):
        assert read == host.lower()
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_aton(read)
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_pton(socket.AF_INET6, read)
        assert not read.endswith(".")
    elif isinstance(read, V4):
        assert socket.inet_aton(host) == read.packed
        assert str(read) == host
    else:
        assert socket.inet_pton(socket.AF_INET6, host.strip("[]")) == read.packed


@proves("G-EGRESS-FUZZ")
@given(st.text(max_size=60), st.sampled_from(["http://", "https://", "HTTP://", "http:/", "http:\\\\", "//", ""]))
@example("a.example\\@127.0.0.1/", "http://")
@example("a.example#@127.0.0.1/", "http://")
@example("a.example;@127.0.0.1", "http://")
@example("\u2488.0.0.1", "http://")
@example("a\uff0ecom", "http://")
@example("xn--a.example:80:80/", "http://")
def test_a_url_is_refused_or_read_as_one_plain_host(text: str, scheme: str):
    try:
        url = check_url(scheme + text)
    except EgressRefused:
        return
    authority = re.match(r"[^/?#]*", (scheme + text).partition("//")[2])
    assert authority is not None
    host = url.raw_host.decode("ascii")
    assert authority[0].isascii()
    assert "@" not in authority[0]
    assert authority[0].lower().removeprefix("[").startswith(host.lower())
    parse_host(host)


# Answers of a resolver ---------------------------------------------------------------------------------------------------

PUBLIC = st.one_of(
    st.integers(0x08080000, 0x0808FFFF).map(V4), st.integers(0x26064700 << 96, (0x26064700 << 96) + 2**64).map(V6)
)


@st.composite
def inner_answers(draw: st.DrawFn) -> list[Address]:
    """Answers of which at least one is not public, wherever it stands."""
    answers: list[Address] = draw(st.lists(PUBLIC, max_size=4))
    address = draw(inner_v4())
    bad: Address = draw(st.one_of(st.just(address), wrapped_v4(address)))
    answers.insert(draw(st.integers(0, len(answers))), bad)
    return answers


@proves("G-EGRESS-FUZZ")
@settings(deadline=None)
@given(inner_answers())
def test_one_inner_address_among_the_answers_refuses_the_host(answers: list[Address]):
    loop = Numbers({"crm.example": [answers]})
    ends = both(loop, EgressPolicy(), "crm.example")
    assert [type(end) for end in ends] == [EgressRefused, EgressRefused]
    assert loop.dialled == []


@proves("G-EGRESS-FUZZ")
@settings(deadline=None)
@given(st.lists(PUBLIC, min_size=1, max_size=4, unique=True))
def test_only_what_was_checked_is_dialled_and_the_resolver_is_asked_once(answers: list[Address]):
    # Whoever answers something else the second time finds that there is no second time.
    loop = Numbers({"crm.example": [answers, answers, [V4("127.0.0.1")]]})
    ends = both(loop, EgressPolicy(), "crm.example")
    assert [type(end) for end in ends] == [NotSent, NotSent]
    assert loop.asked == ["crm.example"] * 2
    assert loop.dialled == [str(one) for one in answers] * 2
    assert not any(denied_range(ipaddress.ip_address(one)) for one in loop.dialled)


@settings(deadline=None)
@given(inner_v4())
def test_a_name_on_the_list_opens_inner_ranges_and_nothing_else(address: V4):
    policy = EgressPolicy(frozenset({"crm.example"}))
    loop = Numbers({"crm.example": [[address]]})
    ends = both(loop, policy, "crm.example")
    kind = denied_range(address)
    assert kind is not None
    wanted = NotSent if kind[1] == "internal" else EgressRefused
    assert [type(end) for end in ends] == [wanted, wanted]
    assert loop.dialled == ([str(address)] * 2 if wanted is NotSent else [])


@proves("G-EGRESS-FUZZ")
def test_a_resolver_that_takes_too_long_is_not_waited_for():
    loop = Numbers({"slow.example": [[V4("8.8.8.8")]]}, delay_s=60.0)
    started = time.monotonic()
    ends = both(loop, EgressPolicy(), "slow.example", deadline_s=0.2)
    assert time.monotonic() - started < 5.0
    assert [getattr(end, "code", "") for end in ends] in (["deadline", "dns_timeout"], ["dns_timeout", "dns_timeout"])
    assert all(isinstance(end, NotSent) for end in ends)
    assert loop.dialled == []


def test_no_answer_at_all_is_not_sent():
    loop = Numbers({"void.example": [[]]})
    assert [type(end) for end in both(loop, EgressPolicy(), "void.example")] == [NotSent, NotSent]

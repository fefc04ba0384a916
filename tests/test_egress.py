"""The one way out: what may be reached, what is pinned, and what is known after a failure."""

import asyncio
import ipaddress
import socket
import time
from typing import cast

import httpx2
import openai
import pytest

from deedbox.egress import (
    EgressClient,
    EgressPolicy,
    EgressRefused,
    MaybeSent,
    NotSent,
    async_http_client,
    check_address,
    check_url,
    dial,
    failure_in,
    parse_host,
)
from deedbox.egress.connections import Kept
from tests.guarantees import proves
from tests.servers.http_provider import Fault, HttpProvider

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
SHORT = 0.3
LONG = 5.0


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.01",
        "1.2.3.4.",
        "1.2.3.256",
        "\uff11\uff12\uff17.0.0.1",
        "::1%lo",
        "[fe80::1%25eth0]",
        "[::1",
        "a b",
        "a..b",
        ".a",
        "",
        "-a.example",
        "a" * 64 + ".example",
        "bücher.example",
        "a.example\n",
        "a.0x1",
        "user@host",
    ],
)
def test_a_host_that_two_parsers_could_read_differently_is_refused(host: str):
    with pytest.raises(EgressRefused):
        parse_host(host)


def test_plain_hosts_are_read():
    assert parse_host("Api.Example") == "api.example"
    assert parse_host("xn--bcher-kva.example") == "xn--bcher-kva.example"
    assert parse_host("my_service") == "my_service"
    assert parse_host("[2606:4700::1]") == ipaddress.ip_address("2606:4700::1")


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.31.255.255",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "169.254.1.1",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "198.19.0.1",
        "203.0.113.9",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.88.99.1",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "::ffff:0:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2002:7f00:1::",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
        "4000::1",
        "5f00::1",
    ],
)
def test_no_address_outside_the_public_internet_is_let_through(ip: str):
    with pytest.raises(EgressRefused) as caught:
        check_address(ipaddress.ip_address(ip), EgressPolicy())
    assert (caught.value.failure_class, caught.value.code) == ("denied", "egress_blocked")


@pytest.mark.parametrize("ip", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "169.253.0.1", "2606:4700::1", "2a00:1450::1"])
def test_public_addresses_pass(ip: str):
    check_address(ipaddress.ip_address(ip), EgressPolicy())


def test_a_name_on_the_list_opens_inner_ranges_but_never_metadata():
    policy = EgressPolicy(frozenset({"crm.inner", "mail.inner:25"}))
    inner, metadata = ipaddress.ip_address("10.0.0.5"), ipaddress.ip_address("169.254.169.254")
    check_address(inner, policy, host="crm.inner", port=443)
    check_address(inner, policy, host="mail.inner", port=25)
    for host, port, ip in (("mail.inner", 26, inner), ("other.inner", 443, inner), ("crm.inner", 80, metadata)):
        with pytest.raises(EgressRefused):
            check_address(ip, policy, host=host, port=port)
    with pytest.raises(EgressRefused):
        check_address(inner, policy)


def test_addresses_and_networks_on_the_list_open_just_themselves():
    policy = EgressPolicy(frozenset({"10.0.0.0/8", "[::1]:8025", "192.168.1.1:80", "169.254.169.254"}))
    check_address(ipaddress.ip_address("10.9.9.9"), policy, port=1)
    check_address(ipaddress.ip_address("::1"), policy, port=8025)
    check_address(ipaddress.ip_address("169.254.169.254"), policy)
    for ip, port in (("::1", 8026), ("192.168.1.1", 443), ("192.168.1.2", 80), ("::ffff:10.0.0.1", 1)):
        with pytest.raises(EgressRefused):
            check_address(ipaddress.ip_address(ip), policy, port=port)


@pytest.mark.parametrize(
    "entry", ["", "10.0.0.1/8", "127.1", "host:", "host:0", "host:99999", "host:²", "http://host", "[::1", "*"]
)
def test_a_misspelt_rule_does_not_start(entry: str):
    with pytest.raises(ValueError, match=r"allow|CIDR|network|host bits|address"):
        EgressPolicy(frozenset({entry}))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h.example/",
        "file:///etc/passwd",
        "//h.example/",
        "h.example/",
        "http://user:pass@h.example/",
        "http://@h.example/",
        "http://h.example\\@evil.example/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://h.example/a b",
        "http://h.example/\r\nX: y",
        "http://h.example:99999/",
        "http://h.example:x/",
        "http://h.example:0/",
        "http:///",
        "http://[::1%25lo]/",
        "http://bücher.example/",
        "http://h.example\u3002evil.example/",
    ],
)
def test_a_url_that_is_not_plain_is_refused(url: str):
    with pytest.raises(EgressRefused):
        check_url(url)


def _exchange(url: str, policy: EgressPolicy, *, deadline_s: float = LONG, method: str = "POST", cap: int = 1 << 20):
    async def main():
        client = EgressClient(policy)
        try:
            return await client.request(
                method, url, headers={"Idempotency-Key": "k"}, content=b"{}", deadline_s=deadline_s, cap=cap
            )
        finally:
            await client.aclose()

    return main()


@proves("G-EGRESS")
def test_loopback_is_refused_at_once_and_not_a_byte_leaves():
    async def main():
        async with HttpProvider().running() as provider:
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
                with pytest.raises(EgressRefused):
                    await _exchange(f"http://{host}:{provider.port}/notes", EgressPolicy())
            assert provider.connections == 0

    asyncio.run(main())


def test_an_allowed_host_gets_the_request_with_its_own_host_header():
    async def main():
        async with HttpProvider().running() as provider:
            policy = EgressPolicy(frozenset({f"localhost:{provider.port}"}))
            answer = await _exchange(f"http://localhost:{provider.port}/notes?x=1", policy)
            assert answer.status == 201
            assert answer.headers["content-type"] == "application/json"
            (request,) = provider.requests
            assert request.target == "/notes?x=1"
            assert request.headers["host"] == f"localhost:{provider.port}"
            assert request.headers["accept-encoding"] == "identity"

    asyncio.run(main())


def test_a_mapped_spelling_of_an_allowed_address_stays_refused():
    with pytest.raises(EgressRefused):
        asyncio.run(_exchange("http://[::ffff:127.0.0.1]:9/", LOOPBACK))


@proves("G-EGRESS")
def test_a_redirect_is_an_answer_and_is_not_followed():
    async def main():
        async with HttpProvider().running() as provider:
            provider.faults.append("accept_as_303")
            answer = await _exchange(f"{provider.url}/notes", LOOPBACK)
            assert answer.status == 303
            assert len(provider.requests) == 1

    asyncio.run(main())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    async def main():
        async with HttpProvider().running() as provider, HttpProvider().running() as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            assert (await _exchange(f"{provider.url}/notes", LOOPBACK)).status == 201
            async with async_http_client(LOOPBACK, LONG) as client:
                assert (await client.post(f"{provider.url}/notes", json={})).status_code == 201
            assert proxy.connections == 0

    asyncio.run(main())


def test_nothing_listening_is_not_sent():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(NotSent) as caught:
            asyncio.run(_exchange(f"http://127.0.0.1:{port}/", LOOPBACK))
    assert (caught.value.failure_class, caught.value.phase) == ("not_sent", "connect")


def test_a_name_that_does_not_resolve_is_not_sent():
    with pytest.raises(NotSent) as caught:
        asyncio.run(_exchange("http://nothing.invalid/", EgressPolicy()))
    assert caught.value.phase == "resolve"


def test_tls_to_a_server_without_tls_is_not_sent():
    async def main():
        async with HttpProvider().running() as provider:
            with pytest.raises(NotSent) as caught:
                await _exchange(f"https://127.0.0.1:{provider.port}/", LOOPBACK, deadline_s=SHORT)
            assert caught.value.phase == "tls"
            assert not provider.requests

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fault", "code", "phase"),
    [
        ("hang_before_reading", "deadline", "response_headers"),
        ("accept_then_hang", "deadline", "response_headers"),
        ("accept_then_drip", "deadline", "response_body"),
        ("accept_then_reset", "connection_lost", "response_headers"),
        ("accept_then_close", "unreadable_answer", "response_headers"),
        ("accept_then_cut", "unreadable_answer", "response_body"),
        ("accept_then_not_http", "unreadable_answer", "response_headers"),
        ("accept_then_oversized", "answer_too_large", "response_body"),
        ("accept_then_gzip", "unreadable_answer", "response_body"),
    ],
)
def test_whatever_breaks_after_the_first_byte_left_is_maybe_sent(fault: Fault, code: str, phase: str):
    async def main():
        async with HttpProvider().running() as provider:
            provider.faults.append(fault)
            started = time.monotonic()
            with pytest.raises(MaybeSent) as caught:
                await _exchange(f"{provider.url}/notes", LOOPBACK, deadline_s=SHORT if code == "deadline" else LONG)
            assert time.monotonic() - started < LONG
            assert (caught.value.failure_class, caught.value.code, caught.value.phase) == ("ambiguous", code, phase)
            assert provider.connections == 1, "nothing is tried again"

    asyncio.run(main())


def test_a_body_that_the_other_side_does_not_read_is_maybe_sent():
    async def main():
        async with HttpProvider().running(limit=1024) as provider:
            provider.faults.append("hang_before_reading")
            client = EgressClient(LOOPBACK)
            with pytest.raises(MaybeSent) as caught:
                await client.request("POST", f"{provider.url}/n", content=b"x" * 50_000_000, deadline_s=SHORT)
            assert caught.value.phase == "request_body"
            await client.aclose()

    asyncio.run(main())


async def _post(client: EgressClient, provider: HttpProvider) -> int:
    answer = await client.request("POST", f"{provider.url}/notes", content=b"{}", deadline_s=LONG)
    return answer.status


def _waiting(client: EgressClient) -> list[Kept]:
    return [kept for idle in client._connections._idle.values() for kept in idle]


@pytest.mark.parametrize(("idle_s", "connections"), [(60.0, 1), (1e-9, 3), (0.0, 3)])
def test_a_connection_is_used_again_at_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch, idle_s: float, connections: int):
    async def main():
        monkeypatch.setattr("deedbox.egress.client.IDLE_S", idle_s)
        async with HttpProvider().running() as provider:
            client = EgressClient(LOOPBACK)
            assert [await _post(client, provider) for _ in range(3)] == [201] * 3
            assert provider.connections == connections
            await client.aclose()
            assert not _waiting(client)

    asyncio.run(main())


def test_a_connection_is_used_by_one_exchange_at_a_time_and_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch):
    async def main():
        monkeypatch.setattr("deedbox.egress.client.IDLE_S", 60.0)
        async with HttpProvider().running() as provider:
            client = EgressClient(LOOPBACK)
            assert await asyncio.gather(*(_post(client, provider) for _ in range(3))) == [201] * 3
            assert provider.connections == len(_waiting(client)) == 3
            monkeypatch.setattr("deedbox.egress.connections.LIFE_S", 0.0)
            await _post(client, provider)
            assert provider.connections == 4
            await client.aclose()

    asyncio.run(main())


def test_a_connection_that_the_other_side_closed_is_not_used_again(monkeypatch: pytest.MonkeyPatch):
    async def main():
        monkeypatch.setattr("deedbox.egress.client.IDLE_S", 60.0)
        async with HttpProvider().running() as provider:
            client = EgressClient(LOOPBACK)
            await _post(client, provider)
            for writer in list(provider._writers):
                writer.close()
            (kept,) = _waiting(client)
            async with asyncio.timeout(LONG):
                while not kept.connection.has_expired():  # noqa: ASYNC110 -- each round is a question to the socket
                    await asyncio.sleep(0)
            assert await _post(client, provider) == 201
            assert provider.connections == 2
            await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["accept_then_gzip", "accept_then_oversized", "accept_then_cut", "accept_then_reset"])
def test_a_connection_whose_exchange_broke_is_not_used_again(monkeypatch: pytest.MonkeyPatch, fault: Fault):
    async def main():
        monkeypatch.setattr("deedbox.egress.client.IDLE_S", 60.0)
        async with HttpProvider().running() as provider:
            client = EgressClient(LOOPBACK)
            await _post(client, provider)
            provider.faults.append(fault)
            with pytest.raises(MaybeSent):
                await _post(client, provider)
            assert provider.connections == 1, "nothing is tried again, on a connection used before neither"
            assert not _waiting(client)
            assert await _post(client, provider) == 201
            assert provider.connections == 2
            await client.aclose()

    asyncio.run(main())


def test_a_small_request_leaves_in_one_piece():
    pieces: list[bytes] = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.Transport", transport)

        def data_received(self, data: bytes) -> None:
            pieces.append(data)
            self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main():
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/notes"
        client = EgressClient(LOOPBACK)
        assert (await client.request("POST", url, content=b'{"text":"x"}', deadline_s=LONG)).status == 204
        assert (await client.request("GET", url, deadline_s=LONG)).status == 204
        await client.aclose()
        server.close()

    asyncio.run(main())
    posted, got = pieces
    assert posted.startswith(b"POST /notes HTTP/1.1\r\nHost: 127.0.0.1:")
    assert posted.endswith(b'Content-Length: 12\r\n\r\n{"text":"x"}')
    assert got.endswith(b"\r\n\r\n")
    assert b"content-length" not in got.lower()


def test_headers_that_come_twice_are_joined_and_names_are_lower_case():
    async def main():
        async with HttpProvider(extra_headers={"X-Odd": "a\r\nX-Odd: b\xe9"}).running() as provider:
            provider.faults.append("refuse")
            answer = await _exchange(f"{provider.url}/notes", LOOPBACK)
            assert answer.headers["x-odd"].startswith("a, b")

    asyncio.run(main())


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X y": "a"}, {"X": "é"}, {"X": "a\x00"}])
def test_headers_that_could_split_a_request_are_a_callers_error(headers: dict[str, str]):
    async def main():
        await EgressClient(LOOPBACK).request("GET", "http://127.0.0.1:9/", headers=headers, deadline_s=LONG)

    with pytest.raises(ValueError, match="header"):
        asyncio.run(main())


def test_dial_connects_to_allowed_and_refuses_other_addresses():
    async def main():
        async with HttpProvider().running() as provider:
            sock = await dial("127.0.0.1", provider.port, LOOPBACK, LONG)
            assert sock.getpeername() == ("127.0.0.1", provider.port)
            sock.close()
            with pytest.raises(EgressRefused):
                await dial("localhost", provider.port, LOOPBACK_BY_PORT, LONG)

    asyncio.run(main())


LOOPBACK_BY_PORT = EgressPolicy(frozenset({"localhost:1"}))


def test_dial_to_nothing_is_not_sent():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with pytest.raises(NotSent):
            asyncio.run(dial("127.0.0.1", port, LOOPBACK, LONG))


def test_the_sdk_of_the_model_goes_out_through_the_guarded_client_and_its_refusal_is_found_again():
    async def main():
        async with HttpProvider().running() as provider, async_http_client(EgressPolicy(), LONG) as http:
            sdk = openai.AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", http_client=http, max_retries=0)
            with pytest.raises((openai.APIConnectionError, EgressRefused)) as caught:
                await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
            assert isinstance(failure_in(caught.value), EgressRefused)
            assert provider.connections == 0

    asyncio.run(main())


def test_the_guarded_client_bounds_the_whole_exchange():
    async def main():
        async with HttpProvider().running() as provider, async_http_client(LOOPBACK, SHORT) as client:
            for fault in ("accept_then_hang", "accept_then_drip"):
                provider.faults.append(fault)
                with pytest.raises(httpx2.TimeoutException):
                    await client.post(f"{provider.url}/notes", json={})
            provider.faults.append("accept_as_303")
            assert (await client.post(f"{provider.url}/notes", json={})).status_code == 303
            with pytest.raises(EgressRefused):
                await client.get(f"http://a:b@127.0.0.1:{provider.port}/")

    asyncio.run(main())


def test_an_error_that_is_none_of_ours_has_no_failure_in_it():
    assert failure_in(ValueError("x")) is None

"""Connections of outgoing calls: used again at once or not at all, so that none gone stale looks like a lost request."""

import asyncio
from typing import cast

import httpcore2
import pytest

from deedbox.egress import EgressClient, EgressPolicy, MaybeSent
from deedbox.egress.connections import Kept
from tests.servers.http_provider import Fault, HttpProvider

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))
LONG = 5.0


async def _post(client: EgressClient, provider: HttpProvider) -> int:
    answer = await client.request("POST", f"{provider.url}/notes", content=b"{}", deadline_s=LONG)
    return answer.status


def _waiting(client: EgressClient) -> list[Kept]:
    idle = client._connections._idle  # pyright: ignore[reportPrivateUsage]
    return [kept for those in idle.values() for kept in those]


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
            provider.hang_up()
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


def test_an_exchange_ends_well_while_what_it_would_tidy_away_is_taken_by_others(monkeypatch: pytest.MonkeyPatch):
    async def main():
        monkeypatch.setattr("deedbox.egress.client.IDLE_S", 60.0)
        async with HttpProvider().running() as provider:
            client = EgressClient(LOOPBACK)
            await asyncio.gather(_post(client, provider), _post(client, provider))
            connections = client._connections  # pyright: ignore[reportPrivateUsage]
            (at,) = connections._idle  # pyright: ignore[reportPrivateUsage]
            old, _ = _waiting(client)
            old.idle_since -= 3600
            taken: list[Kept] = []

            async def slowly() -> None:
                # While the old one is closed, somebody else needs a connection, and takes the only one there is.
                taken.append(await connections.take(httpcore2.Origin(*at)))

            monkeypatch.setattr(old.connection, "aclose", slowly)
            assert await _post(client, provider) == 201
            assert taken
            assert provider.connections == 2
            await taken[0].connection.aclose()
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
            client = EgressClient(LOOPBACK)
            answer = await client.request("POST", f"{provider.url}/notes", content=b"{}", deadline_s=LONG)
            await client.aclose()
            assert answer.headers["x-odd"].startswith("a, b")

    asyncio.run(main())

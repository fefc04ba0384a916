"""What a handler reads, and what it is told when that fails."""

import asyncio

import pytest

from deedbox.connectors import ConnectorSettings, HttpTargetConfig, TargetReader
from deedbox.egress import EgressPolicy
from deedbox.model.failure import ActionFailure
from tests.servers.http_provider import Fault, HttpProvider

LOOPBACK = EgressPolicy(frozenset({"127.0.0.1"}))


def test_reading_gives_json_and_uses_the_targets_credentials():
    async def main():
        async with HttpProvider().running() as provider:
            provider.performed.append({"id": "note-1", "key": "ä", "body": None})
            settings = ConnectorSettings(
                http=(HttpTargetConfig.model_validate({"name": "crm", "base_url": provider.url, "bearer": "t"}),)
            )
            reader = TargetReader(settings, LOOPBACK)
            assert await reader.read("crm", "/search?key=ä", 5.0) == provider.performed
            assert provider.requests[0].headers["authorization"] == "Bearer t"
            assert "idempotency-key" not in provider.requests[0].headers
            for fault, refusal, expected in _READ_FAILURES:
                provider.refusal = refusal
                provider.extra_headers = {"Retry-After": "3"}
                provider.faults.append(fault)
                with pytest.raises(ActionFailure) as caught:
                    await reader.read("crm", "/search", 0.3)
                assert caught.value.failure_class == expected, fault
                if fault in {"rate_limited", "refuse"}:
                    assert caught.value.retry_after == 3.0
            for name, path in (("other", "/"), ("crm", "/../x")):
                with pytest.raises(ActionFailure) as caught:
                    await reader.read(name, path, 5.0)
                assert caught.value.failure_class == "caller_error"
            with pytest.raises(ActionFailure) as caught:
                await TargetReader(settings, EgressPolicy()).read("crm", "/", 5.0)
            assert caught.value.code == "egress_blocked"
            await reader.aclose()

    asyncio.run(main())


_READ_FAILURES: tuple[tuple[Fault, int, str], ...] = (
    ("accept_then_hang", 0, "overloaded"),
    ("accept_then_reset", 0, "overloaded"),
    ("accept_then_oversized", 0, "overloaded"),
    ("accept_then_503", 0, "overloaded"),
    ("accept_then_garbage", 0, "caller_error"),
    ("rate_limited", 0, "rate_limited"),
    ("refuse", 401, "denied"),
    ("refuse", 404, "caller_error"),
    ("refuse", 503, "overloaded"),
)

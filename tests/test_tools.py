"""The contract of tools: one shape, whatever became of a call."""

from typing import Any

import pytest
from jsonschema_rs import validator_for

from deedbox.operate.tools import ENVELOPE_SCHEMA, Envelope
from tests.database import TestDatabase
from tests.toolbox import toolbox

pytestmark = pytest.mark.anyio
_SCHEMA = validator_for(dict(ENVELOPE_SCHEMA))


def shape(envelope: Envelope) -> dict[str, Any]:
    """The answer as it is sent, checked against the one schema."""
    shown = envelope.shown()
    _SCHEMA.validate(shown)
    return shown


async def test_what_is_found_is_told(database: TestDatabase) -> None:
    """A read ends with success, its data and the id of the thing."""
    async with toolbox(database) as box:
        box.work()
        got = shape(await box.call("get_status", {"order_id": "A-1"}))
        assert (got["status"], got["object_id"], got["error_code"]) == ("success", "A-1", None), got
        assert got["data"] == {"order_id": "A-1", "state": "open", "text": ""}


async def test_what_is_held_is_pending_and_later_done(database: TestDatabase) -> None:
    """A held effect is pending, not done; after yes the same job tells its receipt."""
    async with toolbox(database) as box:
        box.work()
        box.send()
        await box.turn(on=True)
        got = shape(await box.call("create_lead", {"name": "Ada"}))
        assert (got["status"], got["data"]["reason"]) == ("pending", "awaiting_approval"), got
        assert box.connector.sent == []
        await box.decide(got["job_id"], "approve")
        after = shape(await box.tools.outcome(box.operator, got["job_id"], wait_s=10))
        assert (after["status"], after["object_id"]) == ("success", "provider-lead"), after
        assert len(box.connector.sent) == 1

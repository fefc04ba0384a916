"""The contract of tools: one shape, whatever became of a call."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from jsonschema_rs import validator_for

from deedbox.extend.connector import Ambiguous
from deedbox.model.errors import CODES
from deedbox.model.failure import MATRIX, ActionFailure
from deedbox.model.tool_codes import BY_CLASS, BY_ERROR, TOOL_CODES, of_failure, unmapped
from deedbox.operate.tools import ENVELOPE_SCHEMA, MOST_DATA, Envelope
from tests.database import TestDatabase
from tests.guarantees import proves
from tests.toolbox import toolbox

pytestmark = pytest.mark.anyio
_SCHEMA = validator_for(dict(ENVELOPE_SCHEMA))


def shape(envelope: Envelope) -> dict[str, Any]:
    """The answer as it is sent, checked against the one schema."""
    shown = envelope.shown()
    _SCHEMA.validate(shown)
    return shown


@proves("G-TOOL-SHAPE")
async def test_what_is_found_is_told(database: TestDatabase) -> None:
    """A read ends with success, its data and the id of the thing."""
    async with toolbox(database) as box:
        box.work()
        got = shape(await box.call("get_status", {"order_id": "A-1"}))
        assert (got["status"], got["object_id"], got["error_code"]) == ("success", "A-1", None), got
        assert got["human_message"] == "Get status is done. Its id is A-1."
        assert got["data"] == {"order_id": "A-1", "state": "open", "text": ""}


@proves("G-TOOL-SHAPE")
async def test_what_is_held_is_pending_and_later_done(database: TestDatabase) -> None:
    """A held effect is pending, not done; after yes the same job tells its receipt."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        got = shape(await box.call("create_lead", {"name": "Ada"}))
        assert (got["status"], got["data"]["reason"]) == ("pending", "awaiting_approval"), got
        assert got["retryable"]
        assert box.connector.sent == []
        (approval,) = got["data"]["approvals"]
        assert approval["url"] == f"https://deeds.example/approvals/{approval['approval_id']}"
        await box.decide(got["job_id"], "approve")
        box.send()
        after = shape(await box.tools.outcome(box.operator, got["job_id"], wait_s=20))
        assert (after["status"], after["object_id"]) == ("success", "provider-lead"), after
        assert len(box.connector.sent) == 1


@proves("G-TOOL-SHAPE")
async def test_no_and_silence_are_told_apart(database: TestDatabase) -> None:
    """A no is APPROVAL_REJECTED with the reason; it is final, and the same call again asks nobody again."""
    async with toolbox(database) as box:
        box.work()
        got = await box.call("create_lead", {"name": "Ada"})
        await box.decide(got.job_id, "reject")
        after = shape(await box.tools.outcome(box.operator, str(got.job_id)))
        assert (after["status"], after["error_code"], after["retryable"]) == ("error", "APPROVAL_REJECTED", False)
        assert "not this one" in after["human_message"]
        again = await box.call("create_lead", {"name": "Ada"})
        assert (again.job_id, again.error_code) == (got.job_id, "APPROVAL_REJECTED")
        assert await box.jobs("create_lead") == 1


@proves("G-TOOL-SHAPE")
async def test_what_the_switch_holds_is_pending(database: TestDatabase) -> None:
    """With the switch off an approved effect is pending as switched_off, and nothing is sent."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=False)
        got = await box.call("create_lead", {"name": "Ada"})
        await box.decide(got.job_id, "approve")
        box.send()
        # Nobody sits out a wait for what only a person can let go on.
        async with asyncio.timeout(15):
            after = shape(await box.tools.outcome(box.operator, str(got.job_id), wait_s=25))
            again = shape(await box.call("create_lead", {"name": "Ada"}, wait_s=25))
        for told in (after, again):
            assert (told["status"], told["data"]["reason"], told["retryable"]) == ("pending", "switched_off", True), told
        assert box.connector.sent == []


@proves("G-TOOL-SHAPE")
async def test_what_nobody_knows_is_pending_and_not_retryable(database: TestDatabase) -> None:
    """An effect that may have been accepted is pending, not a failure, and the caller is told not to do it again."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        box.connector.script.append(Ambiguous("timeout", "Nothing came back.", "response_headers"))
        got = await box.call("create_lead", {"name": "Ada"})
        await box.decide(got.job_id, "approve")
        box.send()
        await box.until_effect("unknown")
        after = shape(await box.tools.outcome(box.operator, str(got.job_id)))
        assert (after["status"], after["data"]["reason"], after["retryable"]) == ("pending", "outcome_unknown", False), after
        again = await box.call("create_lead", {"name": "Ada"}, wait_s=0.1)
        assert (again.job_id, again.status) == (got.job_id, "pending")
        assert len(box.connector.sent) == 1


@proves("G-TOOL-SHAPE")
async def test_a_part_done_is_told_with_receipts(database: TestDatabase) -> None:
    """Of two groups one is refused: PARTIALLY_DONE, the receipt in `data`, the other in `errors`."""
    async with toolbox(database) as box:
        box.work()
        await box.turn(on=True)
        got = await box.call("create_pair", {"name": "Ada"})
        await box.decide(got.job_id, "approve", "one")
        await box.decide(got.job_id, "reject", "two")
        box.send()
        after = shape(await box.tools.outcome(box.operator, str(got.job_id), wait_s=20))
        assert (after["status"], after["error_code"], after["retryable"]) == ("error", "PARTIALLY_DONE", False), after
        assert [item["provider_id"] for item in after["data"]["receipts"]] == ["provider-first"]
        assert [item["code"] for item in after["errors"]] == ["APPROVAL_REJECTED"]
        assert after["errors"][0]["message"] == "Group two: not this one."


@proves("G-TOOL-SHAPE")
async def test_the_arguments_of_a_held_input(database: TestDatabase) -> None:
    """Arguments that a person approves first are pending, and nothing has run."""
    async with toolbox(database) as box:
        box.work()
        got = shape(await box.call("erase_lead", {"name": "Ada"}))
        assert (got["status"], got["data"]["reason"]) == ("pending", "awaiting_input_approval"), got
        assert box.play.runs == []


@proves("G-TOOL-INPUT")
@pytest.mark.parametrize(
    ("arguments", "pointers"),
    [
        ({}, ["/order_id"]),
        ({"order_id": "A-1", "nonsense": 1}, ["/nonsense"]),
        ({"order_id": "A-1", "detail": "huge"}, ["/detail"]),
        ({"order_id": None}, ["/order_id"]),
        ({"order_id": ""}, ["/order_id"]),
        ({"order_id": []}, ["/order_id"]),
        ([], [""]),
        ("text", [""]),
        (None, [""]),
        ({"order_id": "A-1", "tags": ["x" * 201]}, ["/tags/0"]),
        ({"order_id": "A\x001"}, ["/order_id"]),
        ({"order_id": "A-1", "note": float("nan")}, ["/note"]),
    ],
)
async def test_input_that_does_not_fit_is_pointed_at(database: TestDatabase, arguments: Any, pointers: list[str]) -> None:
    """INVALID_INPUT names every field; nothing is stored and nothing runs."""
    async with toolbox(database) as box:
        got = shape(await box.call("get_status", arguments))
        assert (got["status"], got["error_code"], got["retryable"]) == ("error", "INVALID_INPUT", False), got
        assert [item["pointer"] for item in got["errors"]] == pointers
        assert got["job_id"] is None
        assert await box.jobs("get_status") == 0
        row = await box.row(got["audit_id"])
        assert (row["status"], row["error_code"], row["detail"]["validation"]) == ("refused", "INVALID_INPUT", "invalid")


@proves("G-TOOL-INPUT")
async def test_null_absent_empty_text_and_empty_list_are_four_inputs(database: TestDatabase) -> None:
    """Each is another input with an outcome of its own, and none stands for another."""
    async with toolbox(database) as box:
        box.work()
        given: list[dict[str, Any]] = [
            {"order_id": "A-1"},
            {"order_id": "A-1", "note": None},
            {"order_id": "A-1", "note": ""},
            {"order_id": "A-1", "tags": []},
        ]
        parent = await box.parent(calls=4)
        got = [await box.call("get_status", one, parent_job_id=parent) for one in given]
        assert [one.status for one in got] == ["success"] * 4
        assert len({one.job_id for one in got}) == 4
        bad = [await box.call("get_status", {"order_id": "A-1", "tags": one}) for one in (None, "")]
        assert [one.error_code for one in bad] == ["INVALID_INPUT"] * 2


@proves("G-TOOL-INPUT")
async def test_a_secret_is_not_kept(database: TestDatabase) -> None:
    """SECRET_IN_INPUT points at the field and repeats nothing; neither the answer nor the journal holds it."""
    secret = "sk-" + "live-" + "a1B2" * 8
    async with toolbox(database) as box:
        got = shape(await box.call("get_status", {"order_id": "A-1", "note": secret}))
        assert (got["error_code"], got["errors"][0]["pointer"]) == ("SECRET_IN_INPUT", "/note")
        assert secret not in str(got)
        assert secret not in str(await box.row(got["audit_id"]))


@proves("G-TOOL-ROLE")
async def test_a_role_in_the_arguments_counts_for_nothing(database: TestDatabase) -> None:
    """A viewer who claims to be a manager is a viewer; the journal has both."""
    async with toolbox(database) as box:
        box.work()
        refused = shape(await box.call("create_lead", {"name": "Ada", "role": "manager"}, who=box.viewer))
        assert refused["error_code"] == "PERMISSION_DENIED"
        row = await box.row(refused["audit_id"])
        assert (row["claimed_role"], row["role"], row["status"]) == ("manager", None, "refused")
        read = shape(await box.call("get_status", {"order_id": "A-1", "role": "admin"}, who=box.viewer))
        assert read["status"] == "success"
        row = await box.row(read["audit_id"])
        assert (row["claimed_role"], row["role"]) == ("admin", "viewer")
        assert await box.jobs("create_lead") == 0


@proves("G-TOOL-ROLE")
async def test_tools_are_listed_by_role(database: TestDatabase) -> None:
    """Nobody is shown what they may not call; what is kept inside is shown to nobody and is no tool."""
    async with toolbox(database) as box:
        assert [tool.name for tool in box.tools.listed(box.viewer)] == ["get_status"]
        assert [tool.name for tool in box.tools.listed(box.operator)] == [
            "create_lead",
            "create_pair",
            "erase_lead",
            "get_status",
            "run_agent",
        ]
        assert [tool.name for tool in box.tools.listed(box.manager)] == ["draft_only"]
        assert (await box.call("keep_inside", {"name": "Ada"})).error_code == "NOT_FOUND"
        assert await box.jobs("keep_inside") == 0


@proves("G-TOOL-READ")
async def test_what_reads_cannot_act(database: TestDatabase) -> None:
    """Annotations are derived: an action that is said to read has no way to plan an effect."""
    async with toolbox(database) as box:
        shown = {tool.name: tool.annotations for tool in box.tools.listed(box.operator)}
        assert shown["get_status"] == {"read_only": True, "destructive": False, "idempotent": True, "open_world": True}
        assert shown["create_lead"] == {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}
        box.work()
        box.play.plans = True
        got = await box.call("get_status", {"order_id": "A-1"})
        assert (got.status, got.error_code) == ("error", "INTERNAL_ERROR")
        assert await database.value("SELECT count(*) FROM deedbox.effect") == 0


@proves("G-TOOL-BUSINESS")
async def test_a_failure_the_business_knows(database: TestDatabase) -> None:
    """A handler's own code comes back in capitals with its sentence, and is final; the text holds the code."""
    async with toolbox(database) as box:
        box.work()
        got = await box.call("get_status", {"order_id": "none"})
        assert (got.status, got.error_code, got.retryable) == ("error", "ORDER_NOT_FOUND", False)
        assert got.text == "ORDER_NOT_FOUND: There is no order of this number."
        assert not got.task_error
        denied = await box.call("draft_only", {"name": "Ada"}, who=box.manager)
        assert (denied.error_code, denied.task_error) == ("POLICY_DENIED", True)


@proves("G-TOOL-BUSINESS")
@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ActionFailure("caller_error", "read_404", "The target crm answered 404."), "PROVIDER_ERROR"),
        (ActionFailure("denied", "read_401", "The target crm answered 401."), "PROVIDER_ERROR"),
        (ActionFailure("caller_error", "internal_error", "Mine."), "INTERNAL_ERROR"),
        (KeyError("the inside of things"), "INTERNAL_ERROR"),
        (ActionFailure("invalid_output", "not_json", "no"), "INVALID_OUTPUT"),
        (
            ActionFailure("caller_error", "order_gone", "<html><body>boom at http://10.0.0.7:8080/x</body></html>"),
            "ORDER_GONE",
        ),
    ],
)
async def test_failures_are_answers(database: TestDatabase, failure: Exception, code: str) -> None:
    """Never markup, an address, a trace or what the code raised; always one of the codes."""
    async with toolbox(database) as box:
        box.work()
        box.play.fails.append(failure)
        got = shape(await box.call("get_status", {"order_id": "A-1"}))
        assert (got["status"], got["error_code"], got["retryable"]) == ("error", code, False), got
        for odd in ("<", "http://", "10.0.0.7", "KeyError", "Traceback"):
            assert odd not in got["human_message"]


@proves("G-TOOL-WAIT")
async def test_a_wait_names_attempt_cause_and_time(database: TestDatabase) -> None:
    """While it is tried again the sentence says which attempt, why in plain words, and how long."""
    async with toolbox(database) as box:
        box.work()
        box.play.fails.append(ActionFailure("rate_limited", "read_429", "The target crm answered 429.", retry_after=40))
        got = shape(await box.call("create_lead", {"name": "Ada"}, wait_s=0))
        await box.until_event(got["job_id"], "job.retrying")
        got = shape(await box.tools.outcome(box.operator, got["job_id"]))
        assert (got["status"], got["data"]["reason"]) == ("pending", "retrying"), got
        said = got["human_message"]
        assert said.startswith("Attempt 1 of 3 did not work, because the other side asked to wait;"), said
        assert "after 40 seconds" in said or "after 41 seconds" in said or "after 60 seconds" in said, said


@proves("G-TOOL-SHAPE")
async def test_an_outdated_version_is_told(database: TestDatabase) -> None:
    """A call made for another version is VERSION_MISMATCH and starts nothing."""
    async with toolbox(database) as box:
        got = await box.call("get_status", {"order_id": "A-1"}, version=1)
        assert (got.error_code, got.retryable, got.job_id) == ("VERSION_MISMATCH", False, None)
        box.work()
        assert (await box.call("get_status", {"order_id": "A-1"}, version=2)).status == "success"


@proves("G-TOOL-SHAPE")
async def test_long_data_goes_by_link(database: TestDatabase) -> None:
    """Beyond 32 KiB `data` is a link with the size, never a cut."""
    async with toolbox(database) as box:
        box.work()
        box.play.length = MOST_DATA
        got = shape(await box.call("get_status", {"order_id": "A-1"}))
        assert got["data"]["too_large"]
        assert got["data"]["link"] == f"https://deeds.example/api/jobs/{got['job_id']}"
        assert got["object_id"] == "A-1"


async def test_get_job_and_cancel(database: TestDatabase) -> None:
    """`job` tells progress, events after a number and the result; `cancel` says how it stands."""
    async with toolbox(database) as box:
        box.work()
        parent = await box.parent(calls=4)
        got = shape(await box.tools.job(box.operator, parent, after=0, wait_s=5))
        assert got["data"]["progress"]["message"] == "looking around"
        seen = got["data"]["next_after"]
        assert [event["seq"] for event in got["data"]["events"]] == list(range(1, seen + 1))
        box.play.go.set()
        done = shape(await box.tools.job(box.operator, parent, after=seen, wait_s=10))
        assert done["data"]["events"][0]["seq"] == seen + 1
        while done["status"] == "pending":
            done = shape(await box.tools.job(box.operator, parent, after=done["data"]["next_after"], wait_s=10))
        assert done["data"]["result"] == {"name": "agent"}
        gone = shape(await box.tools.cancel(box.operator, parent))
        assert (gone["error_code"], gone["status"]) == ("NOT_CANCELED", "error")
        waiting = await box.call("create_lead", {"name": "Ada"})
        canceled = shape(await box.tools.cancel(box.operator, str(waiting.job_id)))
        assert canceled["error_code"] == "CANCELED"
        assert (await box.tools.job(box.viewer, str(uuid4()))).error_code == "NOT_FOUND"


async def test_while_the_store_is_away_the_answer_is_an_answer(database: TestDatabase) -> None:
    """UNAVAILABLE, retryable, and nothing raised."""
    async with toolbox(database) as box:
        await box.road.pool.close()
        got = shape(await box.call("create_lead", {"name": "Ada"}, wait_s=0))
        assert (got["status"], got["error_code"], got["retryable"]) == ("error", "UNAVAILABLE", True)


def test_every_code_leads_to_one_of_ours() -> None:
    """The one table covers every code and every class, and names no code that is not explained."""
    assert unmapped() == []
    assert set(BY_ERROR) == set(CODES)
    assert set(BY_CLASS) == set(MATRIX)
    assert set(BY_CLASS.values()) <= set(TOOL_CODES)
    assert of_failure("caller_error", "customer_not_found") == "CUSTOMER_NOT_FOUND"
    # Nobody's own code can pass itself off as one of ours that means more.
    assert of_failure("caller_error", "permission_denied") == "INTERNAL_ERROR"


async def test_what_is_queued_says_so(database: TestDatabase) -> None:
    """Without a worker a call is pending, with a sentence."""
    async with toolbox(database) as box:
        got = shape(await box.call("create_lead", {"name": "Ada"}, wait_s=0))
        assert (got["status"], got["data"]["reason"]) == ("pending", "queued")
        assert got["human_message"] == "Create lead is accepted and waits for its turn."

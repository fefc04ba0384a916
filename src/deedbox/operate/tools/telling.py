"""What a job has come to, told as a tool's answer: one function from the view of a job to the envelope."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from pydantic import ValidationError

from deedbox.extend.action import Action
from deedbox.extend.agents import TOOL_PENDING
from deedbox.model.failure import MATRIX, FailureClass
from deedbox.model.secrets import masked_value, suspicious
from deedbox.model.tool_codes import is_retryable, of_failure
from deedbox.operate.job_view import EffectSummary, Failed, JobView, Outcome
from deedbox.operate.tools.envelope import MOST_ERRORS, Envelope, Fault, bounded
from deedbox.operate.tools.sentences import CAUSES, called, plain, said, wait
from deedbox.store.rows import encode

UNKNOWN = frozenset({"unknown", "unknown_closed"})
_SOON_S = 2.0
_ASK_AGAIN_S = {"awaiting_human": 10.0}


def told_outcome(outcome: Outcome, action: Action | None, *, audit_id: str, link: str) -> Envelope:
    """The answer for a job that has completed, as `told` gives it for its view."""
    return _completed(outcome, action, audit_id, link)


def told(view: JobView, action: Action | None, *, audit_id: str, link: str, base_url: str, switched_off: bool) -> Envelope:
    """The answer for a job as it stands.

    `action` is None where this build does not have it any more; `link` is where the job is asked about, and `base_url` where
    people decide. `switched_off` says that its effects wait for the switch.
    """
    if view.state == "completed":
        return _completed(view, action, audit_id, link)
    if view.is_over:
        return _failed(view, action, audit_id, link)
    reason, sentence = _pending(view, switched_off=switched_off)
    data = _standing(
        view.state,
        reason,
        view.max_attempts,
        attempt=view.attempts,
        progress=view.progress,
        approvals=[_approval(item, base_url) for item in view.approvals if item.state == "pending"],
    )
    return Envelope(
        "pending",
        view.action,
        str(view.job_id),
        said(sentence),
        audit_id,
        object_id=_receipt_id(view.effects),
        retryable=reason != "outcome_unknown",
        data=_clean(data, link),
        state=view.state,
        retry_after_s=_ASK_AGAIN_S.get(view.state, _SOON_S),
    )


def begun(action: Action, job_id: UUID, *, audit_id: str) -> Envelope:
    """The answer for a job that was queued a moment ago, as `told` gives it for its view."""
    reason, sentence = _queued(called(action.name))
    return Envelope(
        "pending",
        action.name,
        str(job_id),
        said(sentence),
        audit_id,
        retryable=True,
        data=_standing("queued", reason, action.retry.attempts),
        state="queued",
        retry_after_s=_SOON_S,
    )


def _standing(
    state: str,
    reason: str,
    max_attempts: int,
    *,
    attempt: int = 0,
    progress: Mapping[str, Any] | None = None,
    approvals: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """What there is to know of a job while it is pending."""
    return {
        "state": state,
        "reason": reason,
        "attempt": attempt,
        "max_attempts": max_attempts,
        "progress": progress,
        "approvals": list(approvals),
    }


def _approval(item: Any, base_url: str) -> dict[str, Any]:
    return {
        "approval_id": str(item.approval_id),
        "purpose": item.purpose,
        "group": item.group,
        "expires_at": item.expires_at.isoformat(),
        "url": f"{base_url}/approvals/{item.approval_id}",
    }


def _pending(view: JobView, *, switched_off: bool) -> tuple[str, str]:  # noqa: PLR0911 -- one return per reason
    """Why it is not over, in a word and in a sentence."""
    name = called(view.action)
    if view.state == "awaiting_human":
        if any(item.purpose == "input" and item.state == "pending" for item in view.approvals):
            return "awaiting_input_approval", f"A person has to approve the arguments of {name} before it runs."
        return "awaiting_approval", f"{name.capitalize()} waits for a person's approval; nothing has been sent yet."
    if view.state == "dispatching":
        return _sending(view, name, switched_off=switched_off)
    if view.state == "running":
        return "running", f"{name.capitalize()} is under way{_progress(view.progress)}."
    if view.attempts:
        return "retrying", _retrying(view)
    if view.next_attempt_at is not None:
        return "scheduled", f"{name.capitalize()} is accepted and begins later."
    return _queued(name)


def _queued(name: str) -> tuple[str, str]:
    return "queued", f"{name.capitalize()} is accepted and waits for its turn."


def _retrying(view: JobView) -> str:
    why = "it did not work" if view.last_error is None else _cause(view.last_error)
    # Both times are the database's, of one and the same move: the difference is the whole wait.
    left = 1.0 if view.next_attempt_at is None else (view.next_attempt_at - view.updated_at).total_seconds()
    if view.last_error is not None and view.last_error.code == TOOL_PENDING:
        why = plain(view.last_error.message, "a tool of its has no outcome yet").rstrip(".")
        return f"{called(view.action).capitalize()} waits, and looks again by itself after {wait(left)}: {why}."
    return (
        f"Attempt {view.attempts} of {view.max_attempts} did not work, because {why}; "
        f"it is tried again by itself after {wait(left)}. There is no need to call again."
    )


def _sending(view: JobView, name: str, *, switched_off: bool) -> tuple[str, str]:
    if view.needs_attention:
        return "outcome_unknown", (
            f"{name.capitalize()} was sent, but it is not known whether it arrived; a person finds out. Do not do it again."
        )
    if switched_off:
        return "switched_off", f"{name.capitalize()} is approved, but sending is switched off; it leaves when it is on again."
    again = next((effect for effect in view.effects if effect.state == "pending" and effect.attempt and effect.code), None)
    if again is not None:
        why = plain(again.message or "", "it did not work").rstrip(".")
        return "sending", f"Sending attempt {again.attempt} did not work ({why}); it is sent again by itself."
    return "sending", f"{name.capitalize()} is approved and is being sent."


def _progress(progress: Mapping[str, Any] | None) -> str:
    if progress is None:
        return ""
    message = plain(str(progress.get("message") or ""), "").rstrip(".")
    return f": step {progress.get('step')} of {progress.get('total_steps')}" + (f", {message}" if message else "")


def _completed(view: JobView | Outcome, action: Action | None, audit_id: str, link: str) -> Envelope:
    if action is not None and view.version != action.version and view.result is not None and not _fits(view.result, action):
        return Envelope(
            "error",
            view.action,
            str(view.job_id),
            said(f"It was done by version {view.version} of {called(view.action)}, whose result has another form."),
            audit_id,
            object_id=_done_id(view),
            error_code="VERSION_MISMATCH",
            data={"version": view.version, "link": link},
            state=view.state,
            task_error=action.offer.task_error,
        )
    object_id = _done_id(view) or _named(view.result, action)
    if view.declined:
        return _partly(view, action, audit_id, link, f"A part of {called(view.action)} was done; another part was declined.")
    named = "" if object_id is None else f" Its id is {object_id}."
    return Envelope(
        "success",
        view.action,
        str(view.job_id),
        said(f"{called(view.action).capitalize()} is done.{named}"),
        audit_id,
        object_id=object_id,
        data=_clean(view.result, link),
        state=view.state,
    )


def _failed(view: JobView, action: Action | None, audit_id: str, link: str) -> Envelope:
    failed = view.failure or view.last_error or Failed("bug", "", "")
    code = of_failure(failed.failure_class, failed.code)
    if code == "PARTIALLY_DONE":
        return _partly(view, action, audit_id, link, f"A part of {called(view.action)} was done, and a part was not.")
    parked = view.state == "failed_retryable"
    faults = tuple(_not_done(item) for item in view.not_done) + tuple(_declined(item) for item in view.declined)
    return Envelope(
        "error",
        view.action,
        str(view.job_id),
        said(_why(view, failed, code, parked=parked)),
        audit_id,
        error_code=code,
        retryable=parked or (is_retryable(code) and _comes_back(failed.failure_class)),
        errors=faults[:MOST_ERRORS],
        state=view.state,
        task_error=action is not None and action.offer.task_error,
    )


def _why(view: JobView, failed: Failed, code: str, *, parked: bool) -> str:
    name = called(view.action)
    if parked:
        return f"{name.capitalize()} did not work in {view.attempts} attempts, because {_cause(failed)}. It may work later."
    if code == "INTERNAL_ERROR":
        return f"Something went wrong inside {name}; the people who look after it are told."
    if code in {"PROVIDER_ERROR", "PROVIDER_TIMEOUT", "RATE_LIMITED", "INVALID_OUTPUT"}:
        return f"{name.capitalize()} did not work, because {_cause(failed)}."
    return plain(failed.message, f"{name.capitalize()} did not work.")


def _cause(failed: Failed) -> str:
    if "timeout" in failed.code:
        return "the other side did not answer in time"
    return CAUSES.get(failed.failure_class, "something went wrong")


def _comes_back(failure_class: str) -> bool:
    rule = MATRIX.get(cast("FailureClass", failure_class))
    return rule is not None and rule.job == "retry"


def _partly(view: JobView | Outcome, action: Action | None, audit_id: str, link: str, sentence: str) -> Envelope:
    not_done = view.not_done if isinstance(view, JobView) else ()
    faults = tuple(_not_done(item) for item in not_done) + tuple(_declined(item) for item in view.declined)
    receipts = [
        {"slot": str(item.get("slot")), "provider_id": item.get("provider_id"), "target": item.get("target")}
        for item in view.done
    ]
    return Envelope(
        "error",
        view.action,
        str(view.job_id),
        said(f"{sentence} Do not do it again: `data` says what was done."),
        audit_id,
        object_id=_done_id(view),
        error_code="PARTIALLY_DONE",
        errors=faults[:MOST_ERRORS],
        data=_clean({"receipts": receipts, "result": view.result}, link),
        state=view.state,
        task_error=action is not None and action.offer.task_error,
    )


def _not_done(item: Mapping[str, Any]) -> Fault:
    code = of_failure(str(item.get("class") or "canceled"), str(item.get("code") or ""))
    message = plain(str(item.get("message") or ""), f"It is {item.get('state')}.")
    return Fault(code, message, slot=str(item.get("slot")))


def _declined(item: Mapping[str, Any]) -> Fault:
    code = "APPROVAL_REJECTED" if item.get("state") == "rejected" else "APPROVAL_EXPIRED"
    reason = item.get("reason")
    # People end a reason with a full stop or without one.
    why = plain(str(reason), "declined").rstrip(" .") or "declined" if reason else "nobody decided in time"
    return Fault(code, f"Group {item.get('group')}: {why}.")


def _done_id(view: JobView | Outcome) -> str | None:
    """The first provider's id: of the effects as they stand, or of the receipts that the job ended with."""
    if isinstance(view, JobView):
        return _receipt_id(view.effects)
    return next((str(item["provider_id"]) for item in view.done if item.get("provider_id") is not None), None)


def _receipt_id(effects: Sequence[EffectSummary]) -> str | None:
    return next((effect.provider_id for effect in effects if effect.provider_id is not None), None)


def _named(result: Any, action: Action | None) -> str | None:
    where = None if action is None else action.offer.object_id
    value: Any = result
    for name in () if where is None else where.split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return str(value)[:500] if where is not None and isinstance(value, str | int) else None


def _fits(result: Any, action: Action) -> bool:
    try:
        action.output_model.model_validate(result)
    except ValidationError:
        return False
    return True


def _clean(data: Any, link: str) -> Any:
    """The data as it may leave: without what looks like a secret, and by link where it is too long."""
    if data is not None and suspicious(encode(data)):
        data = masked_value(data)
    return bounded(data, link)

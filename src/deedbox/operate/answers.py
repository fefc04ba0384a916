"""The questions that are asked after something has happened, each answered by a plain sentence and what it stands on.

Was this key processed? Was it sent? Who approved it? Which model drafted it? By which calls, refused ones too? And from the
thing at the provider: whose request was it? What is asked about is named by whatever is at hand: the id of a job, an effect, an
approval or a call (`audit_id`), the caller's key or own run, or what the provider calls the thing. The rule of every door
holds: one's own jobs, or for people who may read the tenant's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast, get_args
from uuid import UUID

from deedbox.model.errors import DeedboxError
from deedbox.model.fingerprint import sha256
from deedbox.model.identity import Principal
from deedbox.model.values import storable_text
from deedbox.store import answers
from deedbox.store.pool import Connection, Pool
from deedbox.store.transaction import autocommit
from deedbox.store.views import Reader

Question = Literal["request", "sent", "approved", "drafted", "called"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
MOST = 20
_AS = {
    "job": "its id",
    "effect": "the id of its effect",
    "approval": "the id of its approval",
    "call": "the id of a call of it",
    "provider": "the provider's id of what was done",
    "caller_run": "the caller's run",
    "key": "its key",
}
_SOURCES = {"sender": "it answered", "late": "it answered late", "look_up": "it said so when asked", "human": "said"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: the question, a sentence that can be said aloud, the job, and the records that the sentence stands on."""

    question: str
    sentence: str
    job_id: UUID | None
    facts: Mapping[str, Any]


async def ask_key(pool: Pool, principal: Principal, action: str, key: str) -> Answer:
    """Was this key of an action processed, and what became of it? Never raises for a key that is free."""
    async with autocommit(pool) as connection:
        bound = await answers.key(connection, Reader.of(principal), storable_text(action), _hash(key))
        request = {} if bound is None or not bound.visible else await answers.request(connection, bound.job_id)
    facts: dict[str, Any] = {"action": action, "key": key, "processed": bound is not None}
    if bound is None:
        said = f"No: no call of {action} with this key was accepted, or its key has expired since."
        return Answer("key", said, None, facts)
    if bound.visible is False:
        # What a repeated delivery by this principal would be told, and no more.
        return Answer("key", f"Yes, by somebody else: the key is taken by a job of {action} that is not yours.", None, facts)
    if not request:
        state = f", which ended as {bound.final_state}" if bound.final_state else ""
        said = f"Yes, on {_when(bound.created_at)}: it made job {bound.job_id}{state}; the records of the job are gone."
        return Answer("key", said, bound.job_id, facts | {"erased": bound.erased, "final_state": bound.final_state})
    said = f"Yes: {_asked(request)}. {_stands(request)}"
    replays = int(request["replays"])
    if replays:
        said += f" {_many(replays, 'later delivery', 'later deliveries')} of the key got the same job."
    if bound.erased:
        said += " Its contents were erased; a delivery of the key is answered with 410."
    return Answer("key", said, bound.job_id, facts | {"request": request})


async def ask(pool: Pool, principal: Principal, question: Question, what: str) -> list[Answer]:
    """An answer for each job that `what` means, newest first, MOST of them at most.

    Raises DeedboxError not_found where it means nothing that this principal may see.
    """
    what = storable_text(what.strip())
    if question == "called":
        return await _called(pool, principal, what)
    async with autocommit(pool) as connection:
        found = await answers.find(connection, Reader.of(principal), what, id_=_id(what), key_sha256=_hash(what), limit=MOST)
        if not found:
            said = "Nothing that you may see has this id, key, run or provider's id."
            raise DeedboxError("not_found", said)
        return [await _ANSWERS[question](connection, one) for one in found]


async def _request(connection: Connection, found: answers.Found) -> Answer:
    request = await answers.request(connection, found.job_id)
    effects = await answers.part(connection, "effects", found.job_id, found.effect_id)
    parents = await answers.part(connection, "parents", found.job_id, None)
    children = await answers.part(connection, "children", found.job_id, None)
    said = f"By {_AS[found.found_as]}: {_asked(request)}. {_stands(request)}"
    said += "".join(f" {_within(parent)}" for parent in parents) + _calls_of(children)
    return _answer("request", said, found, request, effects=effects, parents=parents, children=children)


def _within(parent: Mapping[str, Any]) -> str:
    run = f", run {parent['caller_run']}" if parent["caller_run"] else ""
    if parent["action"] is None:
        return f"It was called within job {parent['job_id']}, whose records are gone."
    who = parent["asked_by"] or "someone who is gone"
    return (
        f"It was called within job {parent['job_id']} of {parent['action']}, which {who} asked for on "
        f"{_when(parent['created_at'])} ({parent['source']}{run})."
    )


def _calls_of(children: Sequence[Mapping[str, Any]]) -> str:
    if not children:
        return ""
    named = ", ".join(f"{child['action']} (job {child['job_id']}, {child['state']})" for child in children)
    return f" It called {named}."


async def _called(pool: Pool, principal: Principal, what: str) -> list[Answer]:
    """An answer for each call, refused ones too. Raises DeedboxError not_found."""
    reader, id_ = Reader.of(principal), _id(what)
    async with autocommit(pool) as connection:
        # Whoever names one call means that call, and not all of its job.
        found = [] if id_ is None else await answers.calls(connection, reader, id_=id_, jobs=[], limit=1)
        if not found:
            jobs = await answers.find(connection, reader, what, id_=id_, key_sha256=_hash(what), limit=MOST)
            found = await answers.calls(connection, reader, id_=None, jobs=[one.job_id for one in jobs], limit=MOST)
    if not found:
        raise DeedboxError("not_found", "No call that you may see has this id, key, run or provider's id.")
    return [Answer("called", _call(call), call["job_id"], {"call": call}) for call in found]


def _call(call: Mapping[str, Any]) -> str:
    who = call["asked_by"] or "someone who is gone"
    through = f" through {call['through']}" if call["through"] else ""
    run = f", run {call['caller_run']}" if call["caller_run"] else ""
    role = f" with the role {call['role']}" if call["role"] else " without a role for it"
    claimed = f" It claimed the role {call['claimed_role']}, which counted for nothing." if call["claimed_role"] else ""
    code = f" as {call['error_code']}" if call["error_code"] else ""
    detail: Mapping[str, Any] = call["detail"] or {}
    answered = detail.get("answer")
    became = call["status"] if answered is None else f"{call['status']}, with {answered}"
    took = f" in {call['duration_ms']:.0f} ms" if call["duration_ms"] is not None else ""
    job = "" if call["job_id"] is None else f" It is about job {call['job_id']}."
    within = "" if call["parent_job_id"] is None else f" It was made within job {call['parent_job_id']}."
    return (
        f"Call {call['call_id']}: {who}{through} called {call['action']}{role} on {_when(call['called_at'])} "
        f"({call['source']}{run}); it was {became}{code}{took}.{claimed}{job}{within}"
    )


async def _sent(connection: Connection, found: answers.Found) -> Answer:
    request = await answers.request(connection, found.job_id)
    effects = await answers.part(connection, "effects", found.job_id, found.effect_id)
    if effects:
        said = " ".join(_effect(effect) for effect in effects)
    elif request.get("state") == "awaiting_human":
        said = "No: it waits for a person, and nothing is on the outbox."
    else:
        said = f"No: nothing of it was put on the outbox. {_stands(request)}"
    return _answer("sent", said, found, request, effects=effects)


def _effect(effect: Mapping[str, Any]) -> str:  # noqa: PLR0911 -- one return per state
    where = f"{effect['slot']} to {effect['connector']}:{effect['target']}"
    receipts = cast("list[Mapping[str, Any]]", effect["receipts"])
    sendings = int(effect["sendings"])
    match str(effect["state"]):
        case "completed" if receipts:
            one = receipts[0]
            how = _SOURCES.get(str(one["source"]), "it answered")
            by = f"{one['by']} {how}, with evidence" if one["source"] == "human" else how
            at = _when(datetime.fromisoformat(str(one["stored_at"])))
            return f"Yes: {where} was accepted, and is {one['provider_id']} there ({by}, on {at})."
        case "completed":
            return f"Yes: {where} was accepted."
        case "unknown" | "unknown_closed":
            return f"Nobody knows: {where} was sent on {_when(effect['first_sent_at'])} and may have been accepted."
        case "sending":
            return f"It is being sent now: {where}."
        case "pending" if sendings:
            return f"Not yet: {where} waits to be sent again, after {_many(sendings, 'sending', 'sendings')}."
        case "pending":
            return f"Not yet: {where} waits on the outbox."
        case state:
            why = f": {effect['message']}" if effect["message"] else ""
            return f"No: {where} is {state}{why}{'' if why.endswith('.') else '.'}"


async def _approved(connection: Connection, found: answers.Found) -> Answer:
    request = await answers.request(connection, found.job_id)
    approvals = await answers.part(connection, "approvals", found.job_id, found.effect_id)
    verdicts = await answers.part(connection, "verdicts", found.job_id, found.effect_id)
    said = [_approval(approval) for approval in approvals]
    said += [
        f"No person: group {one['group']} got {one['decision']} from the rule {one['rule']}, policy {one['policy_version']}."
        for one in verdicts
    ]
    sentence = " ".join(said) or f"Nobody: nothing of it was put to a person. {_stands(request)}"
    return _answer("approved", sentence, found, request, approvals=approvals, verdicts=verdicts)


def _approval(approval: Mapping[str, Any]) -> str:
    what = "its input" if approval["purpose"] == "input" else f"group {approval['group']}"
    by, at = approval["decided_by"] or "nobody", approval["decided_at"]
    why = f", because: {approval['reason']}" if approval["reason"] else ""
    match str(approval["state"]):
        case "approved":
            votes = [str(vote["by"]) for vote in cast("list[Mapping[str, Any]]", approval["votes"])]
            names = " and ".join(dict.fromkeys([name for name in votes if name != "None"] or [by]))
            return f"{names} approved {what} on {_when(at)}, through {approval['decided_how']}{why}."
        case "rejected":
            return f"Nobody: {by} rejected {what} on {_when(at)}{why}."
        case "pending":
            return f"Nobody yet: {what} waits for {', '.join(approval['audience'])} until {_when(approval['expires_at'])}."
        case "expired":
            return f"Nobody: the time of {what} ran out on {_when(at)}."
        case state:
            return f"Nobody: the approval of {what} was {state} on {_when(at)}."


async def _drafted(connection: Connection, found: answers.Found) -> Answer:
    request = await answers.request(connection, found.job_id)
    attempts = await answers.part(connection, "attempts", found.job_id, None)
    said = [_attempt(attempt) for attempt in attempts if attempt["models"]]
    sentence = " ".join(said) or f"None: no attempt of it has asked a model. {_stands(request)}"
    return _answer("drafted", sentence, found, request, attempts=attempts)


def _attempt(attempt: Mapping[str, Any]) -> str:
    models = cast("Sequence[Mapping[str, Any]]", attempt["models"])
    named = " and ".join(dict.fromkeys(f"{one.get('model')} ({one.get('endpoint', 'unknown')})" for one in models))
    prompt = f", prompt {attempt['prompt_version']}" if attempt["prompt_version"] else ""
    repairs = f" after {_many(attempt['repairs'], 'repair', 'repairs')}" if attempt["repairs"] else ""
    what = "wrote what was proposed" if attempt["proposed"] else "was asked"
    return f"{named} {what} in attempt {attempt['attempt']}, on {_when(attempt['ended_at'])}{prompt}{repairs}."


_ANSWERS = {"request": _request, "sent": _sent, "approved": _approved, "drafted": _drafted}


def _answer(question: Question, sentence: str, found: answers.Found, request: Mapping[str, Any], **facts: Any) -> Answer:
    told = {"found_as": found.found_as, "effect_id": found.effect_id, "request": request, **facts}
    return Answer(question, sentence, found.job_id, told)


def _asked(request: Mapping[str, Any]) -> str:
    who = request["asked_by"] or "someone who is gone"
    run = f", run {request['caller_run']}" if request["caller_run"] else ""
    key = f" under the key {request['key']}" if request["key"] and request["key_source"] not in {"new", "content"} else ""
    at, job = _when(request["created_at"]), request["job_id"]
    return f"{who} asked for {request['action']} on {at}{key} ({request['source']}{run}); it is job {job}"


def _stands(request: Mapping[str, Any]) -> str:
    ended = f", since {_when(request['ended_at'])}" if request.get("ended_at") else ""
    return f"The job is {request.get('state')}{ended}."


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass"))


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

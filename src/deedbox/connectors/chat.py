"""What messages to chats have in common: which text can be sent, and what a status says before anyone reads the body."""

import re
from collections.abc import Mapping
from http import HTTPStatus

from deedbox.connectors.answers import CLIENT_ERRORS, SUCCESS, outcome_of, retry_after
from deedbox.egress import Answer, EgressClient, EgressRefused, MaybeSent, NotSent
from deedbox.extend.connector import Ambiguous, Outcome, Refused, Transient
from deedbox.model.failure import class_of_status

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_UNCLEAR = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})


def unsendable(text: str) -> str:
    """The text unchanged; raises ValueError where it has control characters besides line ends and tabs, or says nothing."""
    if _CONTROL.search(text):
        raise ValueError("a message has no control characters but line ends and tabs")
    if not text.strip():
        raise ValueError("a message says something")
    return text


async def ask(
    client: EgressClient, url: str, content: bytes, *, deadline_s: float, headers: Mapping[str, str]
) -> Answer | Outcome:
    """POST JSON once; the answer, or what its absence means. Neither the URL nor a header is in anything that comes back."""
    sent = {"Content-Type": "application/json; charset=utf-8", "Accept": "application/json", **headers}
    try:
        return await client.request("POST", url, headers=sent, content=content, deadline_s=deadline_s)
    except (EgressRefused, NotSent, MaybeSent) as error:
        return outcome_of(error)


def refusal_of_status(answer: Answer, service: str, *, wait_s: float | None = None) -> Outcome | None:
    """What a status other than 2xx means, None for a 2xx. `wait_s` is what the body asks to wait, in seconds."""
    status = answer.status
    code, said = f"{service}_{status}", f"{service.capitalize()} answered {status}."
    if status in SUCCESS:
        return None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = retry_after(answer)
        return Transient("rate_limited", code, said, "answered", wait_s if wait is None else wait)
    if status in CLIENT_ERRORS and status not in _UNCLEAR:
        denied = class_of_status(status) == "denied"
        return Refused("denied" if denied else "caller_error", code, said, "answered")
    return Ambiguous(code, said, "answered")

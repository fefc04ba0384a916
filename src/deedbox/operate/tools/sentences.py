"""Sentences that a model can say: plain, short, without addresses, markup, secrets or what a provider wrote at length."""

import re

from deedbox.model.secrets import masked
from deedbox.model.values import short_message
from deedbox.operate.tools.envelope import MOST_SENTENCE

_TAG = re.compile(r"<[A-Za-z/!][^<>]{0,500}>")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s\"'<>)\]]+", re.IGNORECASE)
_TRACE = ("Traceback (most recent call last)", "<!doctype", "<html", '\n  File "', "    at ")
_MOST_OF_OTHERS = 300

CAUSES = {
    "not_sent": "the other side could not be reached",
    "rate_limited": "the other side asked to wait",
    "overloaded": "the other side failed or was too slow",
    "invalid_output": "the model's answer did not fit",
    "truncated": "the model's answer was cut off",
    "rejected_output": "the result did not pass a check",
    "caller_error": "the other side refused the call",
    "denied": "the other side did not let us in",
    "bug": "something went wrong inside",
    "ambiguous": "the answer was lost on its way",
    "lost": "the worker was interrupted",
    "canceled": "it was canceled",
}
"""The classes of failure in plain words, to follow "because"."""


def plain(text: str, otherwise: str = "The reason cannot be shown.") -> str:
    """A sentence of somebody else's in a form that may be passed on; `otherwise` where nothing of it may."""
    if any(mark.lower() in text.lower() for mark in _TRACE):
        return otherwise
    said = masked(_URL.sub("[address]", _TAG.sub(" ", text)))
    said = " ".join(said.split())
    if not said:
        return otherwise
    return said if len(said) <= _MOST_OF_OTHERS else said[: _MOST_OF_OTHERS - 1].rstrip() + "…"


def said(text: str) -> str:
    """A sentence of our own, no longer than the schema allows."""
    shown = short_message(text)
    return shown if len(shown) <= MOST_SENTENCE else shown[: MOST_SENTENCE - 1].rstrip() + "…"


def called(action: str) -> str:
    """An action's name as it is spoken."""
    return action.replace("_", " ")


def wait(seconds: float) -> str:
    """A wait in words, rounded up so that it is never promised too short."""
    whole = max(1, round(seconds + 0.499))
    if whole < 90:  # noqa: PLR2004 -- up to a minute and a half is told in seconds
        return "1 second" if whole == 1 else f"{whole} seconds"
    minutes = -(-whole // 60)
    return f"{minutes} minutes"

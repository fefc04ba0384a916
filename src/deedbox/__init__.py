"""Deedbox: AI workflows act on the outside world without acting twice, unapproved, or losing anything.

The names below are the whole promise to users of the library; nothing else is.
"""

from deedbox.connectors.http import Http, HttpCall
from deedbox.connectors.smtp import Email, Smtp
from deedbox.extend.context import Context, EffectPlan
from deedbox.extend.document import Document
from deedbox.extend.outcome import Abstain
from deedbox.extend.registry import App
from deedbox.model.backoff import Retry
from deedbox.model.failure import ActionFailure
from deedbox.model.policy import allow, deny, hold

__all__ = [
    "Abstain",
    "ActionFailure",
    "App",
    "Context",
    "Document",
    "EffectPlan",
    "Email",
    "Http",
    "HttpCall",
    "Retry",
    "Smtp",
    "allow",
    "deny",
    "hold",
]

__version__ = "0.1.0"

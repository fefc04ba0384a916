"""Deedbox: AI workflows act on the outside world without acting twice, unapproved, or losing anything.

The names below are the whole promise to users of the library; nothing else is. Each is imported when it is first asked for,
so that a file of handlers, or a command that only asks, does not wait for what it does not use.
"""

from typing import TYPE_CHECKING

from deedbox.lazily import named

if TYPE_CHECKING:
    from deedbox.connectors.http import Http, HttpCall
    from deedbox.connectors.slack import Slack, SlackMessage
    from deedbox.connectors.smtp import Email, Smtp
    from deedbox.connectors.submit import Submit, SubmitJob
    from deedbox.connectors.telegram import Telegram, TelegramMessage
    from deedbox.connectors.templated import HttpTemplate
    from deedbox.extend.agents import AgentLimits, ToolPending
    from deedbox.extend.context import Context, EffectPlan
    from deedbox.extend.contract import Reason
    from deedbox.extend.document import Document
    from deedbox.extend.follow_up import FollowUp
    from deedbox.extend.outcome import Abstain
    from deedbox.extend.registry import App
    from deedbox.extend.sensitive import Sensitive
    from deedbox.model.backoff import Retry
    from deedbox.model.facts import Facts
    from deedbox.model.failure import ActionFailure
    from deedbox.model.policy import allow, deny, hold, rules
    from deedbox.model.rules import Evidence, Grounds, Rule
else:
    _PLACES = {
        "Abstain": "extend.outcome",
        "ActionFailure": "model.failure",
        "AgentLimits": "extend.agents",
        "App": "extend.registry",
        "Context": "extend.context",
        "Document": "extend.document",
        "EffectPlan": "extend.context",
        "Email": "connectors.mail",
        "Evidence": "model.rules",
        "Facts": "model.facts",
        "FollowUp": "extend.follow_up",
        "Grounds": "model.rules",
        "Http": "connectors.http",
        "HttpCall": "connectors.http",
        "HttpTemplate": "connectors.templated",
        "Reason": "extend.contract",
        "Retry": "model.backoff",
        "Rule": "model.rules",
        "Slack": "connectors.slack",
        "SlackMessage": "connectors.slack",
        "Sensitive": "extend.sensitive",
        "Smtp": "connectors.smtp",
        "Submit": "connectors.submit",
        "SubmitJob": "connectors.submit",
        "Telegram": "connectors.telegram",
        "TelegramMessage": "connectors.telegram",
        "ToolPending": "extend.agents",
        "allow": "model.policy",
        "deny": "model.policy",
        "hold": "model.policy",
        "rules": "model.policy",
    }

    __getattr__ = named(__name__, _PLACES)

    def __dir__() -> list[str]:
        """What is there, imported or not."""
        return sorted({*globals(), *_PLACES})


__all__ = [
    "Abstain",
    "ActionFailure",
    "AgentLimits",
    "App",
    "Context",
    "Document",
    "EffectPlan",
    "Email",
    "Evidence",
    "Facts",
    "FollowUp",
    "Grounds",
    "Http",
    "HttpCall",
    "HttpTemplate",
    "Reason",
    "Retry",
    "Rule",
    "Sensitive",
    "Slack",
    "SlackMessage",
    "Smtp",
    "Submit",
    "SubmitJob",
    "Telegram",
    "TelegramMessage",
    "ToolPending",
    "allow",
    "deny",
    "hold",
    "rules",
]

__version__ = "0.1.0"

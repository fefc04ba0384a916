"""The built-in connectors, each behind the same protocol as anyone's.

Each name is imported when it is first asked for: who reads the settings alone does not wait for an HTTP or a mail client.
"""

from typing import TYPE_CHECKING

from deedbox.lazily import named

if TYPE_CHECKING:
    from deedbox.connectors.callback import Callback, CallbackEvent
    from deedbox.connectors.callback_settings import CallbackConfig
    from deedbox.connectors.chat_settings import SlackConfig, TelegramConfig
    from deedbox.connectors.http import Http, HttpCall
    from deedbox.connectors.mail import Email
    from deedbox.connectors.read import TargetReader
    from deedbox.connectors.settings import Bindable, ConnectorSettings, HttpTargetConfig, SmtpConfig
    from deedbox.connectors.slack import Slack, SlackMessage
    from deedbox.connectors.smtp import Smtp
    from deedbox.connectors.submit import Submit, SubmitJob
    from deedbox.connectors.telegram import Telegram, TelegramMessage
    from deedbox.connectors.templated import HttpTemplate
else:
    _PLACES = {
        "Bindable": "settings",
        "Callback": "callback",
        "CallbackConfig": "callback_settings",
        "CallbackEvent": "callback",
        "ConnectorSettings": "settings",
        "Email": "mail",
        "Http": "http",
        "HttpCall": "http",
        "HttpTargetConfig": "settings",
        "HttpTemplate": "templated",
        "Slack": "slack",
        "SlackConfig": "chat_settings",
        "SlackMessage": "slack",
        "Smtp": "smtp",
        "SmtpConfig": "settings",
        "Submit": "submit",
        "SubmitJob": "submit",
        "TargetReader": "read",
        "Telegram": "telegram",
        "TelegramConfig": "chat_settings",
        "TelegramMessage": "telegram",
    }

    __getattr__ = named(__name__, _PLACES)


__all__ = [
    "Bindable",
    "Callback",
    "CallbackConfig",
    "CallbackEvent",
    "ConnectorSettings",
    "Email",
    "Http",
    "HttpCall",
    "HttpTargetConfig",
    "HttpTemplate",
    "Slack",
    "SlackConfig",
    "SlackMessage",
    "Smtp",
    "SmtpConfig",
    "Submit",
    "SubmitJob",
    "TargetReader",
    "Telegram",
    "TelegramConfig",
    "TelegramMessage",
]

"""The built-in connectors, each behind the same protocol as anyone's.

Each name is imported when it is first asked for: who reads the settings alone does not wait for an HTTP or a mail client.
"""

from typing import TYPE_CHECKING

from deedbox.lazily import named

if TYPE_CHECKING:
    from deedbox.connectors.http import Http, HttpCall
    from deedbox.connectors.mail import Email
    from deedbox.connectors.read import TargetReader
    from deedbox.connectors.settings import Bindable, ConnectorSettings, HttpTargetConfig, SmtpConfig
    from deedbox.connectors.smtp import Smtp
    from deedbox.connectors.submit import Submit, SubmitJob
else:
    _PLACES = {
        "Bindable": "settings",
        "ConnectorSettings": "settings",
        "Email": "mail",
        "Http": "http",
        "HttpCall": "http",
        "HttpTargetConfig": "settings",
        "Smtp": "smtp",
        "SmtpConfig": "settings",
        "Submit": "submit",
        "SubmitJob": "submit",
        "TargetReader": "read",
    }

    __getattr__ = named(__name__, _PLACES)


__all__ = [
    "Bindable",
    "ConnectorSettings",
    "Email",
    "Http",
    "HttpCall",
    "HttpTargetConfig",
    "Smtp",
    "SmtpConfig",
    "Submit",
    "SubmitJob",
    "TargetReader",
]

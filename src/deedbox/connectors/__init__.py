"""The built-in connectors, each behind the same protocol as anyone's."""

from deedbox.connectors.http import Http, HttpCall
from deedbox.connectors.mail import Email
from deedbox.connectors.read import TargetReader
from deedbox.connectors.settings import Bindable, ConnectorSettings, HttpTargetConfig, SmtpConfig
from deedbox.connectors.smtp import Smtp

__all__ = [
    "Bindable",
    "ConnectorSettings",
    "Email",
    "Http",
    "HttpCall",
    "HttpTargetConfig",
    "Smtp",
    "SmtpConfig",
    "TargetReader",
]

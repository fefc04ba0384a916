"""What users of the library get for their own tests: providers that break on demand, and the conformance run.

Servers here listen on loopback with real sockets; nothing of this package is needed to run Deedbox.
"""

from deedbox.connectors.signing import BadSignatureError, verify
from deedbox.testing.conformance import Provider, conform
from deedbox.testing.http_provider import HttpProvider
from deedbox.testing.proving import prove
from deedbox.testing.receiver import CallbackReceiver
from deedbox.testing.report import Check, Report
from deedbox.testing.smtp_server import SmtpServer

__all__ = [
    "BadSignatureError",
    "CallbackReceiver",
    "Check",
    "HttpProvider",
    "Provider",
    "Report",
    "SmtpServer",
    "conform",
    "prove",
    "verify",
]

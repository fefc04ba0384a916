"""What users of the library get for their own tests: providers that break on demand, the conformance run, the kinds of tools.

Servers here listen on loopback with real sockets; nothing of this package is needed to run Deedbox.
"""

from deedbox.connectors.signing import BadSignatureError, verify
from deedbox.testing.conformance import Provider, conform
from deedbox.testing.http_provider import HttpProvider
from deedbox.testing.proving import prove
from deedbox.testing.receiver import CallbackReceiver
from deedbox.testing.report import Check, Report
from deedbox.testing.smtp_server import SmtpServer
from deedbox.testing.tool_bench import Outside, ToolBench, tool_bench
from deedbox.testing.tool_kinds import KINDS, ToolReport, check_tool, table
from deedbox.testing.tool_run import ToolCase

__all__ = [
    "KINDS",
    "BadSignatureError",
    "CallbackReceiver",
    "Check",
    "HttpProvider",
    "Outside",
    "Provider",
    "Report",
    "SmtpServer",
    "ToolBench",
    "ToolCase",
    "ToolReport",
    "check_tool",
    "conform",
    "prove",
    "table",
    "tool_bench",
    "verify",
]

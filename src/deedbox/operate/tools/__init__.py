"""The contract of tools, behind every face on which agents call: HTTP, MCP, and jobs that call others.

A call is accepted as any call is (deedbox.intake), committed, waited for a little, and answered in one shape, whatever became
of it. Nothing here is known of a protocol: a face authenticates, makes a `ToolCall` of what it was sent, and says the
envelope.
"""

from deedbox.operate.tools.calling import LONGEST_WAIT_S, WINDOW_S, ToolCall, Tools
from deedbox.operate.tools.catalogue import Catalogue, annotations, may_run
from deedbox.operate.tools.envelope import ENVELOPE_SCHEMA, MOST_DATA, Envelope, Fault, Tool, refusal

__all__ = [
    "ENVELOPE_SCHEMA",
    "LONGEST_WAIT_S",
    "MOST_DATA",
    "WINDOW_S",
    "Catalogue",
    "Envelope",
    "Fault",
    "Tool",
    "ToolCall",
    "Tools",
    "annotations",
    "may_run",
    "refusal",
]

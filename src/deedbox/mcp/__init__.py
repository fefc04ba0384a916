"""The MCP face: Streamable HTTP without sessions, both eras of the protocol on one URL, jobs as tasks.

`entry.py` takes a request, `exchange.py` answers it as JSON or as a stream, and the SDK's `Server` (`server.py`) calls the
handlers. State lives in PostgreSQL alone. No handler of an action runs here: a call is accepted, perhaps waited for, and
followed by its job's id.
"""

from deedbox.mcp.asks import PageAsks
from deedbox.mcp.deps import Addition, McpDeps, View
from deedbox.mcp.drop_in import DropIn
from deedbox.mcp.entry import McpFace

__all__ = ["Addition", "DropIn", "McpDeps", "McpFace", "PageAsks", "View"]

"""What the MCP face stands on. Everything is handed in: the face authenticates, translates and calls."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_types import CallToolRequestParams, Tool
from starlette.requests import Request
from starlette.responses import Response

from deedbox import __version__
from deedbox.mcp.asks import Asks
from deedbox.mcp.context import Ctx, Result
from deedbox.model.identity import Principal
from deedbox.operate.approvals import Approvals
from deedbox.operate.follow import NeverWakes, Wakes
from deedbox.operate.replies import Hears, Replies
from deedbox.operate.tools import Tools
from deedbox.operate.views import Views

LOOPBACK_HOSTS = ("127.0.0.1:*", "localhost:*", "[::1]:*", "127.0.0.1", "localhost", "[::1]")
QUICK_S = 1.5
"""How long a start waits for a job that may end at once, in seconds; a caller that takes tasks is not kept waiting so long."""
QUICK_TASK_S = 0.25
LONGEST_WAIT_S = 20.0
"""How long `get_job` waits at most, in seconds."""

Who = Callable[[Request], Awaitable[Principal | Response]]
"""Who holds the request's bearer token, or the refusal; it may raise what the driver raises."""


@dataclass(frozen=True, slots=True)
class View:
    """One static page that hosts show beside tools (MCP Apps): its address (`ui://…`), its text, and `_meta.ui` of its content.

    It is offered as a resource; the tools of actions name it, and it reaches the job through `get_job`, `cancel_job` and
    `decide_approval`.
    """

    uri: str
    name: str
    title: str
    html: str
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Addition:
    """A tool of one's own beside the actions, answered in the process that serves: for what reads and answers at once."""

    tool: Tool
    call: Callable[[Ctx, CallToolRequestParams], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class McpDeps:
    """What the face is composed of.

    `public_url` is where people reach the pages; links are made from it, never from Host. `hosts` and `origins` are those that
    are served beside loopback and the public URL's own. `keys` seal what a client carries for us: all processes share them, the
    first seals and all are read. `asks` is what a client is asked. `stopping` ends waits and
    streams.
    """

    tools: Tools
    views: Views
    approvals: Approvals
    who: Who
    public_url: str
    asks: Asks
    keys: tuple[bytes, ...] = field(default_factory=lambda: (secrets.token_bytes(32),))
    replies: Replies | None = None
    hears: Hears | None = None
    wakeup: Wakes = field(default_factory=NeverWakes)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_bytes: int = 1 << 20
    view: View | None = None
    additions: tuple[Addition, ...] = ()
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    name: str = "deedbox"
    version: str = __version__

    @property
    def base_url(self) -> str:
        """The public URL without a slash at its end."""
        return self.public_url.rstrip("/")

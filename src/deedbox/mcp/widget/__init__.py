"""The widget: one static page that hosts of MCP Apps show beside a job's tool, and that polls the job through them.

The page is put together once from the files beside this one. It loads nothing, from nowhere: its own policy lets only the very
script and the very style in it run, by their hashes, and its resource asks hosts for no origin at all.
"""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any, Final

from deedbox.mcp.deps import View

URI: Final = "ui://deedbox/job"
NAME: Final = "deedbox-job"
TITLE: Final = "A job, with its progress, its drafts and its result"
META: Final[dict[str, Any]] = {
    "csp": {"connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": []},
    "prefersBorder": True,
}
"""`_meta.ui` of the resource's content: no origin to connect to, to load from, to frame or to resolve against."""
_SCRIPTS: Final = ("bridge.js", "render.js", "page.js")


def view() -> View:
    """The page as the face serves it."""
    return View(URI, NAME, TITLE, page(), META)


@cache
def page() -> str:
    """The page's text; the same in every process of one build."""
    style = _source("page.css")
    script = '"use strict";(() => {\n' + "\n".join(_source(name) for name in _SCRIPTS) + "})();\n"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{_digest(script)}'",
            f"style-src 'sha256-{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    made = _source("page.html")
    for name, text in (("policy", policy), ("style", style), ("script", script)):
        made = made.replace(f"{{{name}}}", text, 1)
    return made


def _source(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

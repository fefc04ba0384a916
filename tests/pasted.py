"""Sessions that stand in the docs: what a test has just seen is what stands there, or is put there."""

import os
import re
from pathlib import Path

PASTE = "DEEDBOX_PASTE_SESSIONS"
"""Set to write sessions and pictures into the docs; whoever does so reads what changed."""


def same_in(page: Path, session: str, *, mark: str = "session") -> None:
    """The code block between the marks holds this session; it is put there first where `PASTE` is set."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"(?<=<!-- {mark} -->\n)```\w*\n(.*?)(?=\n```\n<!-- end of {mark} -->)", text, re.DOTALL)
    assert found is not None, f"{page.name} has no marks of {mark}"
    if os.environ.get(PASTE):
        page.write_text(text[: found.start(1)] + session + text[found.end(1) :], encoding="utf-8")
        return
    assert found[1] == session, f"run this test with {PASTE}=1 and read what changed"

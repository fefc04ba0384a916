"""What an edit changed, word by word, so that a person reads the change and not the whole twice."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

Kind = Literal["same", "gone", "new"]
_WORDS = re.compile(r"\s+|[^\s]+")
MOST_WORDS = 4000
"""Longer texts are shown whole, before and after: comparing them takes too long."""


def differences(before: str, after: str) -> Iterator[tuple[Kind, str]]:
    """The pieces of both texts in order: what is the same, what is gone, what is new. Joined they give each text again."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > MOST_WORDS:
        yield "gone", before
        yield "new", after
        return
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield "same", "".join(old[first:last])
            continue
        if last > first:
            yield "gone", "".join(old[first:last])
        if end > begin:
            yield "new", "".join(new[begin:end])

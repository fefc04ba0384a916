"""What Deedbox promises, each promise bound to the tests that prove it.

A test says `@proves("G-…")`. A promise that no test proves fails the house's tests, and so does a test that names a promise
which is not here; `docs/guarantees.md` is rendered from both.
"""

import pytest

from tests.promise import Guarantee
from tests.promises_bearer import BEARER
from tests.promises_beyond import BEYOND
from tests.promises_gate import GATE
from tests.promises_mcp import MCP
from tests.promises_road import ROAD
from tests.promises_tools import TOOLS
from tests.promises_widget import WIDGET


class UnknownGuaranteeError(LookupError):
    """A test names a promise that is not in the manifest."""


GUARANTEES: tuple[Guarantee, ...] = (*ROAD, *BEYOND, *GATE, *TOOLS, *MCP, *WIDGET, *BEARER)

IDS = frozenset(guarantee.id for guarantee in GUARANTEES)


def proves(*ids: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of promises. Raises UnknownGuaranteeError for an id that is not in the manifest."""
    unknown = sorted(set(ids) - IDS)
    if unknown or not ids:
        raise UnknownGuaranteeError(f"not in tests/guarantees.py: {', '.join(unknown) or 'a mark without an id'}")
    return pytest.mark.proves(*ids)

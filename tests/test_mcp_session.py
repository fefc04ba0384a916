"""The session with the Inspector that stands in the docs is what its commands say."""

from pathlib import Path

import pytest

from tests.database import TestDatabase
from tests.guarantees import proves
from tests.outside.session import session
from tests.pasted import same_in
from tests.servers.commands import ROOT
from tests.servers.fleet import fleet
from tools import node

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not node.is_current(), reason=node.MISSING)]


@proves("G-MCP-CLIENTS")
async def test_the_session_in_the_docs_is_what_the_inspector_says(database: TestDatabase, tmp_path: Path):
    async with fleet(database, tmp_path) as ships:
        server = await ships.server()
        await ships.worker()
        said = await session(ships, server.port or 0)
    same_in(ROOT / "docs" / "agents.md", said, mark="inspector")

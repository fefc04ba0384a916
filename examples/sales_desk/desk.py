"""The sales desk's neighbour as tests and the demo use it: the CRM's process, and what is asked of it."""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from deedbox.testing import ToolCase
from deedbox.testing.tool_bench import Fault
from examples.sales_desk.crm import TOKEN_VARIABLE

ROOT = Path(__file__).resolve().parent.parent.parent
STARTS_WITHIN_S = 30.0
CUSTOMER = "zoe.brandt@example.org"


class SalesCrm:
    """The CRM's process. `settings` are what Deedbox is told of it."""

    def __init__(self, url: str, token: str) -> None:
        """Made by `sales_crm`."""
        self.url = url
        self._token = token
        self._http = httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of an installation that reaches it, by the names of their fields."""
        target = {
            "name": "sales_crm",
            "base_url": self.url,
            "bearer": self._token,
            "capability": "searchable",
            "look_up": "/by-key/{key}",
        }
        return {"targets": [target], "egress_allow": self.url.removeprefix("http://")}

    async def writes(self) -> Sequence[str]:
        """The ids of everything that was ever done in it."""
        answer = (await self._http.get("/writes")).raise_for_status()
        return [str(write["id"]) for write in answer.json()["writes"]]

    async def play(self, fault: Fault) -> None:
        """Break in this way from now on."""
        (await self._http.post("/faults", json={"mode": fault})).raise_for_status()

    async def aclose(self) -> None:
        """Close the client."""
        await self._http.aclose()


@asynccontextmanager
async def sales_crm() -> AsyncGenerator[SalesCrm]:
    """Start the CRM as a process of its own, and end it."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="sales-desk-") as place:
        port_file = Path(place) / "crm.port"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), TOKEN_VARIABLE: token}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.sales_desk.crm",
            "--port-file",
            str(port_file),
            env=environment,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            if process.stdout is None:
                raise RuntimeError("the CRM has no output")
            async with asyncio.timeout(STARTS_WITHIN_S):
                await process.stdout.readline()
            crm = SalesCrm(f"http://127.0.0.1:{port_file.read_text().strip()}", token)
            try:
                yield crm
            finally:
                await crm.aclose()
        finally:
            process.terminate()
            await process.wait()


CASES: tuple[ToolCase, ...] = (
    ToolCase("find_customer_by_email", {"email": CUSTOMER, "detail": "full"}, "viewer", "admin"),
    ToolCase(
        "create_lead",
        lambda use: {"name": f"Ines {use}", "email": f"ines.{use}@example.com", "company": "Araujo", "source": "web"},
        "operator",
        "viewer",
    ),
    ToolCase(
        "update_deal_stage",
        lambda use: {"deal_id": f"deal_{use}", "stage": "offer", "reason": "They asked for a price."},
        "manager",
        "operator",
    ),
    ToolCase(
        "create_support_ticket",
        lambda use: {"customer_email": CUSTOMER, "title": f"Wrong invoice {use}", "text": "One grinder too many."},
        "operator",
        "viewer",
    ),
    ToolCase("get_order_status", {"order_number": "A-10482", "detail": "full"}, "viewer", "admin"),
    ToolCase(
        "draft_customer_reply",
        lambda use: {"customer_email": CUSTOMER, "subject": f"Your invoice {use}", "points": ["We correct it."]},
        "operator",
        "viewer",
    ),
)
"""Each of the six tools with arguments that fit, a role that may call it, and one that may not."""

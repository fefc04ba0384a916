"""A host of MCP Apps on the official AppBridge, served from two origins of its own: the chat's, and the sandbox's."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import uvicorn
from playwright.async_api import Browser, FrameLocator, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tools import node

SOURCES: Final = Path(__file__).parents[1] / "node" / "host"
# What a host lets a view do that asks for no origin at all; a document made by srcdoc has the policy of the one that made it.
SANDBOX_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'"
Answer = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""What a tool answers: its name and arguments in, the envelope out."""


@asynccontextmanager
async def serving(app: Starlette) -> AsyncGenerator[str]:
    """Serve on a port of its own; the URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        # Connections queue from the moment on at which the socket was made.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


_BUNDLED: dict[str, str] = {}


async def bundle(into: Path) -> str:
    """The host's script with all that it imports, made once. Raises LookupError where Node's packages are not set up."""
    if "host" not in _BUNDLED:
        _BUNDLED["host"] = await _bundle(into)
    return _BUNDLED["host"]


async def _bundle(into: Path) -> str:
    made = into / "host.bundle.js"
    options = ["--bundle", "--format=iife", "--platform=browser", f"--outfile={made}", "--log-level=error"]
    process = await asyncio.create_subprocess_exec(
        *node.program("esbuild"), str(SOURCES / "host.js"), *options, env=node.environment(), cwd=SOURCES
    )
    assert await process.wait() == 0
    return await asyncio.to_thread(made.read_text)


def result_of(envelope: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An envelope as a tool's result."""
    return {"content": [{"type": "text", "text": str(envelope["human_message"])}], "structuredContent": dict(envelope), **more}


@dataclass
class Chat:
    """One page of the host, and the view in it."""

    page: Page
    sandbox: str
    requests: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])

    @property
    def view(self) -> FrameLocator:
        """The widget, two frames down."""
        return self.page.frame_locator("iframe").frame_locator("iframe")

    async def start(self, **config: Any) -> Any:
        """Show the view; the call's first answer."""
        return await self.page.evaluate("(config) => host.start(config)", {"sandbox": self.sandbox, **config})

    async def seen(self, name: str) -> Any:
        """What the host has noted: calls, said, notes, links or sizes."""
        return await self.page.evaluate("(name) => host.state[name]", name)

    async def run(self, script: str, *given: Any) -> Any:
        """Run something in the host's page."""
        return await self.page.evaluate(script, *given)


@dataclass
class AppHost:
    """The host's servers and its browser."""

    url: str
    sandbox: str
    browser: Browser

    @asynccontextmanager
    async def chat(
        self, answer: Answer | None = None, *, width: int = 720, scheme: Literal["light", "dark"] = "light"
    ) -> AsyncGenerator[Chat]:
        """A page of the host in a window of its own; `answer` answers where no server is given."""
        context = await self.browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = await context.new_page()
        chat = Chat(page, self.sandbox)
        page.on("request", lambda request: chat.requests.append(request.url))
        page.on("pageerror", lambda error: chat.complaints.append(str(error)))
        page.on("console", lambda line: chat.complaints.append(line.text) if line.type == "error" else None)
        if answer is not None:

            async def told(name: str, given: str) -> str:
                found = await answer(name, json.loads(given))
                return json.dumps(found if "content" in found else result_of(found))

            await page.expose_function("answer", told)  # pyright: ignore[reportUnknownMemberType] -- its types say nothing
        try:
            await page.goto(self.url)
            yield chat
        finally:
            await context.close()


@asynccontextmanager
async def app_host(browser: Browser, place: Path) -> AsyncGenerator[AppHost]:
    """Serve the host. Raises LookupError where Node's packages are not set up."""
    script = await bundle(place)
    page, sandbox = (SOURCES / "host.html").read_text(), (SOURCES / "sandbox.html").read_text()
    chat_routes = [
        _file("/", HTMLResponse(page)),
        _file("/host.js", Response(script, media_type="text/javascript")),
    ]
    sandbox_routes = [_file("/", HTMLResponse(sandbox, headers={"Content-Security-Policy": SANDBOX_POLICY}))]
    async with AsyncExitStack() as stack:
        chat_url = await stack.enter_async_context(serving(Starlette(routes=chat_routes)))
        sandbox_url = await stack.enter_async_context(serving(Starlette(routes=sandbox_routes)))
        yield AppHost(f"{chat_url}/", f"{sandbox_url}/", browser)


def _file(path: str, response: Response) -> Route:
    async def answer(_request: Request) -> Response:
        return response

    return Route(path, answer)

"""Nothing dials but by the one way out: the sources are read for every module and call that opens connections."""

import ast
from collections.abc import Iterator
from pathlib import Path

import deedbox
from tests.guarantees import proves

SOURCES = Path(deedbox.__file__).parent

# Libraries that open connections, or that bring a client of their own.
DIALLERS = (
    "aiohttp",
    "aiosmtplib",
    "authlib.integrations",
    "ftplib",
    "http.client",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "imaplib",
    "openai",
    "poplib",
    "pydantic_ai",
    "requests",
    "smtplib",
    "socket",
    "telnetlib",
    "urllib.request",
    "urllib3",
    "websockets",
    "xmlrpc",
)
CALLS = frozenset({"create_connection", "open_connection", "open_unix_connection", "sock_connect", "connect_tcp"})

ALLOWED = {
    "egress/client.py": "the one client",
    "egress/connections.py": "its connections",
    "egress/dial.py": "the one dial",
    "egress/transport.py": "the transport under both",
    "connectors/smtp.py": "speaks over a socket that egress dialled",
    "worker/agent.py": "an agent whose model is an endpoint of ours, and which gets no other",
    "worker/endpoint.py": "speaks through egress' client",
    "worker/model_call.py": "names what an endpoint's answers are",
    "cli/listening.py": "listens",
    "cli/serve.py": "listens",
    "wiring/installation.py": "asks for the host's name",
    "embedded/control.py": "the socket of the embedded PostgreSQL",
    "testing/http_provider.py": "a server on loopback",
    "testing/smtp_server.py": "a server on loopback",
}


def modules_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls_of(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def dials(source: str) -> list[str]:
    """What in a source could open a connection."""
    tree = ast.parse(source)
    named = {name for name in modules_of(tree) if any(name == one or name.startswith(f"{one}.") for one in DIALLERS)}
    return sorted(named | {name for name, _ in calls_of(tree) if name in CALLS})


@proves("G-ONE-WAY-OUT")
def test_only_the_way_out_and_those_that_are_named_here_know_how_to_dial():
    found = {
        path.relative_to(SOURCES).as_posix(): used
        for path in sorted(SOURCES.rglob("*.py"))
        if (used := dials(path.read_text(encoding="utf-8")))
    }
    strangers = {name: used for name, used in found.items() if name not in ALLOWED}
    assert not strangers, f"these could dial past egress: {strangers}"
    assert not sorted(set(ALLOWED) - set(found)), "named without need"


@proves("G-ONE-WAY-OUT")
def test_mail_speaks_over_a_socket_that_was_dialled_by_egress():
    tree = ast.parse((SOURCES / "connectors/smtp.py").read_text(encoding="utf-8"))
    clients = [call for name, call in calls_of(tree) if name == "SMTP"]
    assert len(clients) == 1
    assert "sock" in {keyword.arg for keyword in clients[0].keywords}
    assert "dial" in {name for name, _ in calls_of(tree)}


@proves("G-ONE-WAY-OUT")
def test_clients_of_other_libraries_are_given_ours():
    for path in sorted(SOURCES.rglob("*.py")):
        for name, call in calls_of(ast.parse(path.read_text(encoding="utf-8"))):
            if name in {"AsyncOpenAI", "OpenAIProvider", "AsyncOAuth2Client"}:
                assert {"http_client", "openai_client", "transport"} & {word.arg for word in call.keywords}, path
            if name in {"AsyncClient", "Client"} and path.parent.name != "egress":
                raise AssertionError(f"{path}: a client of its own")


def test_the_reader_of_sources_sees_what_it_looks_for():
    assert dials("import asyncio\nasync def f(): await asyncio.open_connection('h', 1)") == ["open_connection"]
    assert dials("from urllib.request import urlopen") == ["urllib.request", "urllib.request.urlopen"]
    assert dials("from urllib.parse import quote") == []

"""What is promised of access tokens, and of clients and agents that others wrote."""

from tests.promise import Guarantee

BEARER: tuple[Guarantee, ...] = (
    Guarantee(
        "G-BEARER",
        "An access token counts only when a published key of its issuer signed it, for this server, and now.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-BEARER-SCOPE",
        "A token opens no route it was not issued for, whatever its holder may do, and the refusal names the scope.",
        "faces: MCP",
    ),
    Guarantee(
        "G-BEARER-METADATA",
        "Who comes without a token is told where one is issued for this server, and for what (RFC 9728).",
        "faces: MCP",
    ),
    Guarantee(
        "G-BEARER-ROLES",
        "A token's groups set roles as a login does, and an older token gives back nothing that a newer one took.",
        "safety: who is asking",
    ),
    Guarantee(
        "G-BEARER-DECIDES",
        "A person's token decides where it was issued for that; a program's never does, nor one that acts for a person.",
        "safety: approval",
    ),
    Guarantee(
        "G-BEARER-KEPT-BACK",
        "A token is kept in no table, written to no log and sent to nobody.",
        "mcp-sdk: auth",
    ),
    Guarantee(
        "G-BEARER-NO-FLOOD",
        "Whatever tokens arrive, an issuer is asked for its keys at most once in ten seconds; rotation needs no restart.",
        "faces: MCP",
    ),
    Guarantee(
        "G-MCP-CLIENTS",
        "The Inspector, the official Python client and FastMCP's each start, poll, cancel and follow tasks on real processes.",
        "faces: MCP",
    ),
    Guarantee(
        "G-MCP-KILL9",
        "A server or a worker that is killed in mid-job, or both, loses no job that a client started and runs none twice.",
        "faults: MCP clients",
    ),
    Guarantee(
        "G-MCP-BUFFERED",
        "Behind a proxy that passes on no byte before the end, and cuts what takes long, polling still completes.",
        "faults: MCP clients",
    ),
    Guarantee(
        "G-AGENTS",
        "An agent of pydantic-ai, LangGraph or the OpenAI SDK acts through Deedbox, and a call it makes twice is one job.",
        "issue: tools for agents",
    ),
    Guarantee(
        "G-MCP-DROP-IN",
        "On an MCP server that somebody has already, Deedbox's tools, tasks and resources stand beside that server's own.",
        "faces: MCP",
    ),
)

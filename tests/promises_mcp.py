"""What is promised to MCP clients."""

from tests.promise import Guarantee

MCP: tuple[Guarantee, ...] = (
    Guarantee(
        "G-MCP-ERAS",
        "Both eras of MCP are served on one URL by any replica: the official conformance suite passes through a balancer.",
        "faces: MCP",
    ),
    Guarantee(
        "G-MCP-LIST",
        "A caller is shown the tools of their own roles, in one order, with annotations that are true.",
        "faces: MCP",
    ),
    Guarantee(
        "G-MCP-START",
        "An MCP start is answered within two seconds: with the result, or with the id under which it is found later.",
        "faces: MCP",
    ),
    Guarantee("G-MCP-PROGRESS", "Progress is told to a caller that gave a token, and to no other.", "faults: MCP clients"),
    Guarantee("G-MCP-CANCEL", "An explicit cancel over MCP reaches the handler within two seconds.", "faults: MCP clients"),
    Guarantee("G-MCP-DETACH", "A client that hangs up stops no job that it has started.", "faults: MCP clients"),
    Guarantee("G-MCP-FOREIGN", "Over MCP a foreign job, task or resource is an unknown one.", "faces: MCP"),
    Guarantee(
        "G-MCP-PAGE",
        "A host answers no approval: its person is asked to open the page once, where it can, and decides there.",
        "safety: approval",
    ),
    Guarantee(
        "G-MCP-DECIDE",
        "Only a person with the verb is shown `decide_approval`, and it is never for a model.",
        "safety: approval",
    ),
    Guarantee(
        "G-MCP-KEYS",
        "A key over MCP is the same wherever it stands, and equal calls in both eras at once are one job.",
        "faces: MCP",
    ),
    Guarantee(
        "G-MCP-TASKS",
        "Where a client takes tasks a job is one: committed before it is named, found by every replica, ended once.",
        "faces: MCP",
    ),
    Guarantee("G-MCP-PUSH", "Who listens is told of each change of a task, from whichever process it comes.", "faces: MCP"),
    Guarantee(
        "G-MCP-RESTART", "After a restart of everything a job and its task are found by their ids.", "faults: MCP clients"
    ),
    Guarantee(
        "G-MCP-NO-STORE",
        "What the server is and which tools there are is told while the database is away.",
        "faults: MCP clients",
    ),
    Guarantee("G-MCP-HOSTS", "A request for a host, or from a page of an origin, that is not served is refused.", "faces: MCP"),
)

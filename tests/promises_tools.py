"""What is promised of tools: what agents call, under one contract."""

from tests.promise import Guarantee

TOOLS: tuple[Guarantee, ...] = (
    Guarantee(
        "G-TOOL-CONTRACT",
        "What agents cannot be given safely is no tool; where it is declared one, it is refused at registration.",
        "faces: tool contract",
    ),
    Guarantee(
        "G-TOOL-SHAPE",
        "A tool answers in one shape, whatever became of the call; what is held, switched off or unknown is pending.",
        "faces: tool contract",
    ),
    Guarantee(
        "G-TOOL-INPUT",
        "Arguments that do not fit start nothing, and each field is pointed at; null, absent, empty text and list differ.",
        "faces: tool contract",
    ),
    Guarantee("G-TOOL-ROLE", "A role in the arguments is journalled as claimed and decides nothing.", "faces: tool contract"),
    Guarantee("G-TOOL-READ", "What is annotated as read-only can have no effects; annotations are derived.", "faces: MCP"),
    Guarantee(
        "G-TOOL-BUSINESS",
        "A failure is an answer with a code and a sentence, without markup, addresses, traces or secrets.",
        "faces: tool contract",
    ),
    Guarantee("G-TOOL-WAIT", "While it is tried again an answer names the attempt, the cause and the wait.", "faces: MCP"),
    Guarantee(
        "G-TOOL-START",
        "A call of a tool with `tool_wait=0` is answered as soon as its job is committed, in the job's own words.",
        "faces: MCP",
    ),
    Guarantee(
        "G-TOOL-ONCE",
        "Equal calls within one job, or of one caller within a minute, are one effect; after success the stored result.",
        "faces: tool contract",
    ),
    Guarantee(
        "G-TOOL-BUDGET",
        "A job makes so many calls of tools and no more, over all attempts, and none once it has ended.",
        "faces: tool contract",
    ),
    Guarantee(
        "G-TOOL-KINDS",
        "The kit of eleven kinds passes a tool only where what it says is what was done outside.",
        "issue 5: tools",
    ),
    Guarantee(
        "G-TOOL-AUDIT",
        "Every call, refused ones too, is journalled; a thing at a provider leads to who asked, and back.",
        "faces: tool contract",
    ),
)

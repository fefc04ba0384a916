"""What is promised of the widget, and of the example that it shows."""

from tests.promise import Guarantee

WIDGET: tuple[Guarantee, ...] = (
    Guarantee(
        "G-WIDGET-PROGRESS",
        "The widget shows how far a job is, marks results in the making as drafts, and replaces them by the final one.",
        "issue 5: widget",
    ),
    Guarantee("G-WIDGET-NO-ORIGIN", "The widget loads nothing from anywhere, and runs no script but its own.", "faces: MCP"),
    Guarantee(
        "G-WIDGET-FOLLOW-UPS",
        "A finished result offers what its action declares, in those very words; no word of a result speaks for the reader.",
        "issue 5: job examples",
    ),
    Guarantee("G-WIDGET-RETRIES", "The widget says in plain words what failed, and how often it was tried.", "issue 5: widget"),
    Guarantee("G-WIDGET-CANCEL", "Cancel in the widget stops the code that runs.", "issue 5: widget"),
    Guarantee(
        "G-WIDGET-APPROVE",
        "The widget lets those decide who may, on the digest of what they were shown, and leads all others to the page.",
        "issue 5: widget",
    ),
    Guarantee(
        "G-WIDGET-RESTORES", "A widget that is shown again has everything back from the job's number alone.", "faces: MCP"
    ),
    Guarantee(
        "G-WIDGET-HIDDEN",
        "A widget that nobody can see asks for nothing, and asks more slowly while nothing happens.",
        "faces: MCP",
    ),
    Guarantee(
        "G-WIDGET-TEXT",
        "Whatever a model, a document or a provider wrote is text in the widget, never markup.",
        "issue 5: widget",
    ),
    Guarantee(
        "G-DOCUMENT-BY-NUMBER",
        "A call may name the document of an earlier job that its caller may see; any other document is unknown.",
        "issue 5: job examples",
    ),
    Guarantee(
        "G-GIFTS",
        "The long example shows every retry, reads nothing twice, survives the kill of its worker, and stops when canceled.",
        "issue 5: job examples",
    ),
)

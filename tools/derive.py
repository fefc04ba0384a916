"""Write, or with --check compare, everything that is derived from the model.

`python -m tools.derive` rewrites each marked block in the newest migration that holds it, and the generated pages of the docs;
with `--check` it changes nothing and exits 1, naming each stale file.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deedbox.model import audited
from deedbox.model.errors import CODES
from deedbox.model.identity import DECIDE_SCOPE, FORM_SCOPE, PERMISSIONS, VERBS
from deedbox.model.lifecycle import ALL, APPROVAL, EFFECT, JOB, Lifecycle
from deedbox.model.permissions import ROUTES
from deedbox.model.tool_codes import BY_CLASS, BY_ERROR, BY_FAILURE, TOOL_CODES

ROOT = Path(__file__).resolve().parent.parent
MIGRATIONS = ROOT / "src/deedbox/store/migrations"
_BLOCK = re.compile(
    r"(?P<head>[ ]*-- >>> derived (?P<name>\S+)\n)(?P<body>.*?)(?P<tail>(?P<indent>[ ]*)-- <<< derived (?P=name)\n)", re.DOTALL
)


def _literals(values: tuple[str, ...]) -> list[str]:
    return [f"'{value}'" for value in values]


def _edges(lifecycle: Lifecycle) -> list[str]:
    return [f"('{source}', '{target}')" for source, target in lifecycle.edges() if source != target]


def blocks() -> dict[str, list[str]]:
    """The items of every derived block of SQL, by the block's name."""
    may_end = tuple(state for state in JOB.live if any(JOB.allows(state, ended) for ended in JOB.ended))
    return {
        "job.live": _literals(JOB.live),
        "job.ended": _literals(JOB.ended),
        "job.may_end": _literals(may_end),
        "job.edges": _edges(JOB),
        "approval.states": _literals(APPROVAL.states),
        "approval.edges": _edges(APPROVAL),
        "effect.states": _literals(EFFECT.states),
        "effect.edges": _edges(EFFECT),
        "identity.verbs": _literals(VERBS),
        "identity.roles": [_role(role) for role in PERMISSIONS],
    }


def _role(role: str) -> str:
    verbs = ",".join(verb for verb in VERBS if verb in PERMISSIONS[role])
    return f"('{role}', '{{{verbs}}}', true)"


def holders() -> dict[Path, frozenset[str]]:
    """The migrations that hold derived blocks as they are now: of each block the newest one; older ones stay as applied."""
    newest: dict[str, Path] = {}
    for path in sorted(MIGRATIONS.glob("*.sql")):
        newest |= {match["name"]: path for match in _BLOCK.finditer(path.read_text())}
    return {path: frozenset(name for name, at in newest.items() if at == path) for path in newest.values()}


def migration(path: Path, names: frozenset[str]) -> str:
    """A migration with these derived blocks filled in."""
    items = blocks()

    def fill(match: re.Match[str]) -> str:
        if match["name"] not in names:
            return match[0]
        lines = items[match["name"]]
        body = "".join(f"{match['indent']}{line}{',' if number < len(lines) else ''}\n" for number, line in enumerate(lines, 1))
        return match["head"] + body + match["tail"]

    return _BLOCK.sub(fill, path.read_text())


def states_page() -> str:
    """The page of states and moves."""
    lines = ["# States and moves", "", "<!-- written by `make derive` from deedbox.model.lifecycle; do not edit -->", ""]
    for lifecycle in ALL:
        ended = ", ".join(f"`{state}`" for state in lifecycle.ended)
        live = ", ".join(f"`{state}`" for state in lifecycle.live)
        lines += [f"## {lifecycle.name.capitalize()}", "", f"Live: {live}. Ended: {ended}.", ""]
        lines += ["| move | from | to | who | fenced | notes |", "|---|---|---|---|---|---|"]
        for move in lifecycle.moves:
            source = ", ".join(move.sources) or "-"
            fenced = "yes" if move.fenced else ""
            lines.append(f"| {move.name} | {source} | {move.target} | {', '.join(move.actors)} | {fenced} | {move.notes} |")
        lines.append("")
        if lifecycle.owners:
            lines += [
                "Who moves it on, whatever shape it is in:",
                "",
                "| state | shape | who | finds it by |",
                "|---|---|---|---|",
            ]
            lines += [f"| {one.state} | {one.shape} | {one.who} | `{one.query}` |" for one in lifecycle.owners]
            lines.append("")
    return "\n".join(lines)


def errors_page() -> str:
    """The page of error codes."""
    lines = ["# Error codes", "", "<!-- written by `make derive` from deedbox.model.errors; do not edit -->", ""]
    lines += ["Every refusal is an RFC 9457 problem with one of these codes; the same codes serve every face.", ""]
    lines += ["| code | status | try again | meaning |", "|---|---|---|---|"]
    for name, code in sorted(CODES.items()):
        lines.append(f"| `{name}` | {code.status} | {'yes' if code.retryable else 'no'} | {code.title} |")
    return "\n".join([*lines, ""])


def permissions_page() -> str:
    """The page of permissions: what each role may do, and what each route asks."""
    lines = ["# Permissions", "", "<!-- written by `make derive` from deedbox.model; do not edit -->", ""]
    lines += [
        "What a role may do. Your own roles (`deedbox roles add`) stand beside these in one table of the database, and what"
    ]
    lines += ["counts is read from there at every call.", ""]
    lines += [f"| role | {' | '.join(verb.replace('_', ' ') for verb in VERBS)} |", "|---" * (len(VERBS) + 1) + "|"]
    for role, verbs in PERMISSIONS.items():
        lines.append(f"| `{role}` | {' | '.join('yes' if verb in verbs else '' for verb in VERBS)} |")
    scopes = {"personal key": DECIDE_SCOPE, "form key": FORM_SCOPE}
    for name, verbs in scopes.items():
        lines.append(f"| {name}, at most | {' | '.join('yes' if verb in verbs else '' for verb in VERBS)} |")
    lines += [
        "",
        "What each route asks of its caller. `verb`: a principal that may do it. `bearer`: any living key or session;",
    ]
    lines += [
        "what it sees is bound in SQL. `session`: a person in a session. `open`: nobody is asked, for the reason given.",
        "",
    ]
    lines += ["| route | asks for | and |", "|---|---|---|"]
    for (method, path), needed in ROUTES.items():
        asks = f"may {needed.verb.replace('_', ' ')}" if needed.verb else needed.who
        lines.append(f"| `{method} {path}` | {asks} | {needed.why} |")
    lines += ["", "`deedbox users`, `keys`, `roles` and `tenants` work at the machine and never over HTTP.", ""]
    return "\n".join(lines)


def audit_page() -> str:
    """The page of the audit with the table of its verbs as it is now; the rest of it is written by hand."""
    rows = [f"| `{verb}` | {said} |" for verb, said in audited.VERBS.items()]
    table = "\n".join(["| verb | what it says |", "|---|---|", *rows])
    text = (ROOT / "docs/audit.md").read_text()
    return re.sub(r"(<!-- verbs -->\n).*?(<!-- end of verbs -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)


def mcp_page() -> str:
    """The page of MCP with what the conformance suite found last; the rest of it is written by hand."""
    found: dict[str, dict[str, int]] = json.loads((ROOT / "tests/conformance_app/summary.json").read_text(encoding="utf-8"))
    lines = ["| revision | scenarios | checks passed | of the tasks extension |", "|---|---|---|---|"]
    for revision, scenarios in found.items():
        tasks = {name: passed for name, passed in scenarios.items() if name.startswith("tasks-")}
        said = f"{sum(tasks.values())} checks in {sum(map(bool, tasks.values()))} scenarios" if tasks else "not defined there"
        lines.append(f"| {revision} | {len(scenarios)} | {sum(scenarios.values())} | {said} |")
    text = (ROOT / "docs/mcp.md").read_text(encoding="utf-8")
    table = "\n".join(lines)
    return re.sub(r"(<!-- conformance -->\n).*?(<!-- end of conformance -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)


def tools_page() -> str:
    """The page of tools with the table of their codes as it is now; the rest of it is written by hand."""
    rows: list[str] = []
    for code, known in TOOL_CODES.items():
        found = sorted({name for names in (BY_ERROR, BY_FAILURE) for name, leads in names.items() if leads == code})
        found += [f"{name} (class)" for name, leads in BY_CLASS.items() if leads == code]
        rows.append(f"| `{code}` | {'yes' if known.retryable else 'no'} | {known.meaning} | {', '.join(found)} |")
    table = "\n".join(["| code | again | meaning | from |", "|---|---|---|---|", *rows])
    text = (ROOT / "docs/tools.md").read_text()
    return re.sub(r"(<!-- codes -->\n).*?(<!-- end of codes -->)", rf"\g<1>{table}\n\g<2>", text, flags=re.DOTALL)


def _outputs() -> dict[Path, Callable[[], str]]:
    from tools.pages import doors_page, faults_page, guarantees_page, settings_page  # noqa: PLC0415 -- tests must be importable only here

    return {
        **{path: partial(migration, path, names) for path, names in holders().items()},
        ROOT / "docs/states.md": states_page,
        ROOT / "docs/errors.md": errors_page,
        ROOT / "docs/permissions.md": permissions_page,
        ROOT / "docs/audit.md": audit_page,
        ROOT / "docs/mcp.md": mcp_page,
        ROOT / "docs/tools.md": tools_page,
        ROOT / "docs/settings.md": settings_page,
        ROOT / "docs/guarantees.md": guarantees_page,
        ROOT / "docs/doors.md": doors_page,
        ROOT / "docs/faults.md": faults_page,
    }


def main() -> int:
    """Write or check; the exit code is 1 when a file was stale under --check."""
    check = "--check" in sys.argv[1:]
    stale: list[str] = []
    for path, make in _outputs().items():
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"stale: {name}" if check else f"wrote: {name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The house keeps its own rules: promises are proved, docs name everything, and no file holds what it must not."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import deedbox
from deedbox.cli.main import app
from deedbox.model.errors import CODES
from tests.guarantees import GUARANTEES, IDS, UnknownGuaranteeError, proves
from tools import check, pages

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "deedbox"
# `job.queued` and the like, quoted, in Python or SQL: how an event's type is written.
# Not the widget's script of that name.
_EVENT = re.compile(r"""["'](?P<type>(?:job|effect)\.(?!js["'])[a-z_]+)["']""")


def _docs() -> str:
    """Everything a reader can find a name in, generated pages included."""
    texts = [(ROOT / "README.md").read_text(encoding="utf-8")]
    texts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    return "\n".join(texts)


def _undocumented(names: set[str]) -> list[str]:
    docs = _docs()
    return sorted(name for name in names if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", docs))


def _commands(group: typer.Typer, path: str) -> Iterator[str]:
    """The full names of the commands that do something."""
    for command in group.registered_commands:
        name = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        if name and not command.hidden:
            yield f"{path} {name}"
    for child in group.registered_groups:
        if child.typer_instance is not None and not child.hidden:
            name = child.name or child.typer_instance.info.name
            yield from _commands(child.typer_instance, f"{path} {name}" if isinstance(name, str) else path)


def test_every_promise_is_proved() -> None:
    proved = {proof.guarantee for proof in pages.proofs() if proof.collected}
    unproved = [guarantee.id for guarantee in GUARANTEES if guarantee.id not in proved]
    assert not unproved, f"no test proves {', '.join(unproved)}"


def test_every_proof_names_a_promise_and_is_a_test() -> None:
    wrong = [proof.node for proof in pages.proofs() if proof.guarantee not in IDS or not proof.collected]
    assert not wrong


def test_ids_are_unique_and_look_alike() -> None:
    ids = [guarantee.id for guarantee in GUARANTEES]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"G-[A-Z0-9]+(-[A-Z0-9]+)*", name) for name in ids)
    assert all(guarantee.promise.endswith(".") and guarantee.source for guarantee in GUARANTEES)


def test_an_unknown_promise_cannot_be_claimed() -> None:
    with pytest.raises(UnknownGuaranteeError, match="G-NO-SUCH"):
        proves("G-NO-SUCH")
    with pytest.raises(UnknownGuaranteeError):
        proves()


def test_public_names_are_documented() -> None:
    assert not _undocumented(set(deedbox.__all__))


def test_public_names_exist_and_say_what_they_are() -> None:
    assert len(deedbox.__all__) == len(set(deedbox.__all__))
    for name in deedbox.__all__:
        assert getattr(deedbox, name).__doc__, name


def test_commands_are_documented() -> None:
    assert not _undocumented(set(_commands(app, "deedbox")))


def test_settings_are_documented() -> None:
    assert not _undocumented(set(pages.settings_fields()))


def test_error_codes_are_documented() -> None:
    assert not _undocumented(set(CODES))


def test_events_are_documented() -> None:
    written = {
        match["type"]
        for pattern in ("*.py", "*.sql")
        for path in SOURCES.rglob(pattern)
        for match in _EVENT.finditer(path.read_text(encoding="utf-8"))
    }
    assert "job.queued" in written
    assert not _undocumented(written)


def test_derived_files_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.derive", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long() -> None:
    assert not list(check.sizes())


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not list(check.names())


def test_no_file_holds_what_it_must_not() -> None:
    assert not list(check.contents())


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("host of a package registry", "--index-url https://" + "py" + "pi.org/simple"),
        ("host of a package registry", '"resolved": "https://registry.' + "npm" + 'js.org/x.tgz"'),
        ("absolute path of one machine", 'open("' + "/wo" + 'rk/main/x")'),
        ("absolute path of one machine", "cd " + "/ho" + "me/ann/deedbox"),
        ("private key", "-----BEGIN RSA PRIV" + "ATE KEY-----"),
        ("cloud key", "AK" + "IA" + "ABCDEFGHIJKLMNOP"),
        ("key of a model provider", "sk" + "-" + "a1" * 20),
        ("note of unfinished work", "# TO" + "DO: later"),
    ],
)
def test_forbidden_text_is_seen(what: str, text: str) -> None:
    assert [name for name, pattern in check.FORBIDDEN if pattern.search(text)] == [what]


@pytest.mark.parametrize("text", ["https://example.org/work/items", "src/work/x", "/workshop/", "a todo-list app", "sk-short"])
def test_plain_text_is_not_taken_for_it(text: str) -> None:
    assert not [name for name, pattern in check.FORBIDDEN if pattern.search(text)]


def test_each_face_that_exists_is_kept_from_the_store() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    named = next(set(contract["source_modules"]) for contract in contracts if contract["id"] == "faces")
    there = {f"deedbox.{face}" for face in ("http", "mcp", "web", "cli") if list((SOURCES / face).glob("*.py"))}
    assert there == named


def test_lock_files_pin_every_package_with_a_hash() -> None:
    for name in ("dev", "installer"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        loose = [line for line in lines if not re.match(r"[a-z0-9.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)]
        assert lines
        assert not loose


def test_the_installer_is_the_one_that_the_lock_file_pins() -> None:
    dev, installer = ((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8") for name in ("dev", "installer"))
    pin = installer.split()[0]
    assert pin.startswith("uv==")
    assert f"\n{pin} " in dev


def test_every_check_of_the_house_can_be_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.check", "nonsense"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert all(name in done.stderr for name in check.CHECKS)


def test_an_interpreter_that_is_too_old_is_told_so() -> None:
    code = "import sys; sys.version_info = (3, 8, 0, 'final', 0); from tools import set_up; raise SystemExit(set_up.main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Deedbox needs Python 3.11 or newer")
    assert len(done.stderr.splitlines()) == 1

"""What is imported before anything is asked for, and what the command line says of itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from deedbox.cli import main
from tests.servers.commands import Cli, environment

HEAVY = (
    "aiosmtplib",
    "argon2",
    "fastapi",
    "httpx2",
    "openai",
    "opentelemetry",
    "psycopg",
    "pydantic_ai",
    "starlette",
    "uvicorn",
)


def brought_by(statement: str) -> set[str]:
    """The packages that a new interpreter has after the statement."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], env=environment(None), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import deedbox", {*HEAVY, "pydantic", "asyncio", "structlog", "typer"}),
        ("from deedbox import App, Context, Retry, allow, hold", {*HEAVY, "structlog", "typer"}),
        ("import deedbox.cli.main", {*HEAVY, "pydantic", "asyncio", "structlog"}),
        ("from deedbox.cli.main import command_line; command_line('help')", {*HEAVY, "pydantic", "asyncio", "structlog"}),
        ("from deedbox.cli.main import command_line; command_line('jobs')", {"fastapi", "openai", "pydantic_ai", "uvicorn"}),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(statement: str, absent: set[str]) -> None:
    assert not brought_by(statement) & absent


def test_every_public_name_is_there_and_no_other() -> None:
    code = "import deedbox\nfrom deedbox import *\nassert all(name in globals() for name in deedbox.__all__)\ndeedbox.nonsense"
    done = subprocess.run([sys.executable, "-c", code], env=environment(None), capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "AttributeError: module 'deedbox' has no attribute 'nonsense'"


@pytest.mark.anyio
async def test_help_lists_every_command_and_each_has_its_own(tmp_path: Path) -> None:
    cli = Cli(None, tmp_path)
    listed = await cli("--help")
    assert listed.code == 0
    for name, entry in main.COMMANDS.items():
        assert f" {name} " in listed.out
        assert entry.summary.split(",")[0] in listed.out
    for name in ("serve", "jobs", "keys", "demo"):
        own = await cli(name, "--help")
        assert own.code == 0
        assert f"Usage: deedbox {name}" in own.out
    assert (await cli("--version")).out.startswith("deedbox ")


@pytest.mark.anyio
async def test_a_command_that_is_nearly_right_is_told_the_right_one(tmp_path: Path) -> None:
    for arguments, meant in ((("job", "list"), "'jobs'"), (("jobs", "lst"), "'list'")):
        ended = await Cli(None, tmp_path)(*arguments)
        assert ended.code == 2
        assert meant in ended.err


# The demo --------------------------------------------------------------------------------------------------------------


def test_the_demo_runs_where_its_files_are_with_the_switch_on_and_ends_as_it_does(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "support_desk"
    folder.mkdir(parents=True)
    (folder / "demo.py").write_text(
        "import os, sys\nprint(os.environ['AI_ACTIONS_ENABLED'], os.getcwd(), sys.argv[1:])\nsys.exit(7)\n"
    )
    command = [sys.executable, "-m", "deedbox.cli.main", "demo", "--stay"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(None), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"true {tmp_path} ['--stay']\n"), done


def test_without_its_files_the_demo_says_what_to_do(tmp_path: Path) -> None:
    # As a package that was installed: nothing beside it but other packages.
    package = tmp_path / "lib" / "python" / "site-packages"
    package.mkdir(parents=True)
    (package / "deedbox").symlink_to(Path(main.__file__).parent.parent)
    code = "import sys; from deedbox.cli.main import main; sys.argv = ['deedbox', 'demo']; main()"
    env = environment(None, {"PYTHONPATH": str(package)})
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, ""), done
    assert "make demo" in done.stderr
    assert len(done.stderr.splitlines()) == 1

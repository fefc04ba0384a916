"""Where things are: the application, the database, and what is said when one of them is not there."""

import importlib
import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deedbox import embedded
from deedbox.extend.registry import App
from deedbox.settings import Settings
from deedbox.store.address import describe_url, first_line
from deedbox.store.migrate import SchemaError
from deedbox.store.pg_errors import UNREACHABLE, StoreError


class StartError(RuntimeError):
    """Something that is missing for the start, in a sentence that says what to do."""


class UnreachableError(StartError):
    """The database cannot be reached."""


def load_app(place: str) -> App:
    """The App at `module:name`, or in a file (`path/to/app.py`, attribute `app`). Raises StartError."""
    module_name, _, attribute = place.partition(":")
    if not attribute and not module_name.endswith(".py"):
        raise StartError(f"{place}: name the app as module:attribute or as a .py file")
    sys.path.insert(0, str(Path.cwd()))
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location("deedbox_user_app", module_name)
            if spec is None or spec.loader is None:
                raise StartError(f"{module_name}: is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise StartError(f"{place}: {error}") from error
    found: Any = getattr(module, attribute or "app", None)
    if not isinstance(found, App):
        raise StartError(f"{place}: there is no App called {attribute or 'app'!r}")
    return found


@dataclass(frozen=True, slots=True)
class Database:
    """Where the store is: the application's URL, the one that may change the schema, and one past a pooler, if there is one."""

    url: str
    owner_url: str
    running: embedded.Running | None = None
    direct: str | None = None

    @property
    def direct_url(self) -> str:
        """For connections that listen or must not queue behind others: past the pooler, or the application's URL."""
        return self.direct or self.url

    @property
    def place(self) -> str:
        """Where it is, for people: the state directory, or user, host and name without the password."""
        return str(self.running.info.state_dir) if self.running else describe_url(self.url)


def find_database(settings: Settings) -> Database:
    """The database that settings name, or the embedded one, started. Raises EmbeddedError, or StartError for a bad URL."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        direct = settings.direct_url.get_secret_value() if settings.direct_url else url
        owner = settings.migrate_url.get_secret_value() if settings.migrate_url else direct
        for name, text in (("DEEDBOX_DATABASE_URL", url), ("DEEDBOX_DIRECT_URL", direct), ("DEEDBOX_MIGRATE_URL", owner)):
            try:
                describe_url(text)
            except ValueError as error:
                raise StartError(f"{name}: {error}") from error
        return Database(url, owner, direct=direct)
    running = embedded.start(settings.state)
    return Database(running.info.app_url, running.info.owner_url, running)


@contextmanager
def told_plainly() -> Generator[None]:
    """Turns what the store raises into StartError (UnreachableError where nobody answers), for faces that do not know it."""
    try:
        yield
    except SchemaError as error:
        raise StartError(str(error)) from error
    except UNREACHABLE as error:
        raise UnreachableError(f"the database does not answer: {first_line(error)}") from error
    except StoreError as error:
        raise StartError(f"the database refused: {first_line(error)}") from error

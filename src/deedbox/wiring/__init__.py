"""The composition root: the one place where pools, loops and faces are put together."""

from deedbox.wiring.faces import make_asgi
from deedbox.wiring.installation import ALL_ROLES, Installation, Role, opened
from deedbox.wiring.loops import run_roles
from deedbox.wiring.mcp_beside import mcp_beside
from deedbox.wiring.places import Database, StartError, UnreachableError, find_database, load_app, told_plainly
from deedbox.wiring.schema import Probe, migrate_database, probe

__all__ = [
    "ALL_ROLES",
    "Database",
    "Installation",
    "Probe",
    "Role",
    "StartError",
    "UnreachableError",
    "find_database",
    "load_app",
    "make_asgi",
    "mcp_beside",
    "migrate_database",
    "opened",
    "probe",
    "run_roles",
    "told_plainly",
]

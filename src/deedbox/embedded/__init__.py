"""The embedded PostgreSQL: the server that Deedbox runs itself when no database of one's own is named.

`start` makes a cluster below the state directory at the first call, starts its server unless it runs, and returns a
`Running` that counts as one user of it; the server stops when its last user has ended. Everything here is synchronous:
it runs before and after the loops, never in them.

| module | what it answers |
|---|---|
| `process.py` | how a program is run: as which account, with which environment |
| `locks.py` | who starts, who uses, and whether any process of the server lives |
| `binaries.py` | where programs are that the account can run |
| `place.py` | where the cluster lies, and which account owns it |
| `cluster.py` | its making, its settings, its first roles |
| `control.py` | launching, waiting for and stopping the server |
| `server.py` | the public face over these |
"""

from deedbox.embedded.process import EmbeddedError
from deedbox.embedded.server import Embedded, Running, Status, remove, start, status, stop

__all__ = ["Embedded", "EmbeddedError", "Running", "Status", "remove", "start", "status", "stop"]

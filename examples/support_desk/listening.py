"""How the neighbours of the demo take a port: bound first, announced second, so that whoever reads the file may connect."""

import os
import socket
import sys
from pathlib import Path


def listen(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1; port 0 lets the kernel choose. Raises OSError where the port is taken.

    Connections queue in the backlog from this moment on, so none is refused while the server itself still starts.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(128)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def announce(sock: socket.socket, port_file: Path) -> int:
    """Write the socket's port to a file, whole or not at all, then say so in one line on standard output, and return it.

    Whoever started the process can wait for the line or for the file. Raises OSError where the file cannot be written.
    """
    port = int(sock.getsockname()[1])
    write_atomically(port_file, f"{port}\n".encode())
    sys.stdout.write(f"listening on 127.0.0.1:{port}\n")
    sys.stdout.flush()
    return port


def write_atomically(path: Path, content: bytes) -> None:
    """Put a file in place so that no reader ever sees half of it, and so that it survives a crash once this returned.

    Raises OSError where the directory cannot be written; nothing is left in place then.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

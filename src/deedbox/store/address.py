"""A database's address and the driver's words, as they may be shown: without a password."""

import psycopg
from psycopg import conninfo


def first_line(error: BaseException) -> str:
    """The first line of what the driver said; libpq puts no password in it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def describe_url(url: str) -> str:
    """The database that a libpq URL or key=value text names, as `user@host:port/name`.

    Raises ValueError for text that names no database; the message does not repeat the text, which may hold a secret.
    """
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ValueError("this is neither a PostgreSQL URL nor key=value text of libpq") from error
    user, host, port = parts.get("user"), str(parts.get("host") or "localhost"), parts.get("port")
    where = f"{host}:{port}" if port and not host.startswith("/") else host
    name = f"/{parts['dbname']}" if parts.get("dbname") else ""
    return f"{user}@{where}{name}" if user else f"{where}{name}"

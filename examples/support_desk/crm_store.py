"""The memory of the small CRM: SQLite, one file, one writer, one row per idempotency key.

It stands for a provider with a native key: the same key gives the same object, however often and however parallel it
comes, and a key that returns with another body is refused.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["note", "ticket"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS customer (
    id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE, name TEXT NOT NULL, language TEXT NOT NULL, plan TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS object (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('note', 'ticket')), key TEXT, body TEXT NOT NULL,
    digest TEXT NOT NULL, deliveries INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    UNIQUE (kind, key)
) STRICT;
"""

SEED: tuple[tuple[str, str, str, str], ...] = (
    ("juergen.gross@example.org", "Jürgen Groß", "de", "standard"),
    ("zoe.brandt@example.org", "Zoë Brandt", "en", "business"),
    ("lukasz.zolc@example.com", "Łukasz Żółć", "en", "standard"),
    ("ines.araujo@example.com", "Inês Araújo", "en", "business"),
    ("sven.oe@example.org", "Sven Øe", "de", "standard"),
)


class KeyReusedError(ValueError):
    """An idempotency key came back with another body; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as the CRM keeps it, and whether this delivery was a repetition."""

    value: dict[str, Any]
    replayed: bool


class CrmStore:
    """Customers, notes and tickets in one SQLite file; safe to call from several threads, each call one transaction."""

    def __init__(self, path: Path) -> None:
        """Open or make the database and seed its customers. Raises sqlite3.Error where the file cannot be used."""
        self._lock = threading.Lock()
        # Autocommit mode: every transaction below is begun and ended by name.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_SCHEMA)
        self._db.executemany(
            "INSERT INTO customer (email, name, language, plan) VALUES (?, ?, ?, ?) ON CONFLICT (email) DO NOTHING", SEED
        )

    def close(self) -> None:
        """Close the file; the store is of no use afterwards."""
        with self._lock:
            self._db.close()

    def customers(self, email: str | None) -> list[dict[str, Any]]:
        """The customers with this address (letter case does not count), or all of them."""
        sql = "SELECT id, email, name, language, plan FROM customer WHERE ?1 IS NULL OR email = ?1 ORDER BY id"
        with self._lock:
            rows: list[sqlite3.Row] = self._db.execute(sql, (None if email is None else email.strip().lower(),)).fetchall()
        return [{**dict(row), "id": f"cust_{row['id']}"} for row in rows]

    def accept(self, kind: Kind, key: str | None, body: Mapping[str, Any]) -> Stored:
        """Store an object once per key and count the deliveries of it; without a key every call makes a new one.

        Raises KeyReusedError where the key is bound to another body. The object is on disk when this returns.
        """
        text = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                stored = self._insert_or_count(kind, key, text, digest)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        return stored

    def by_key(self, kind: Kind | None, key: str) -> dict[str, Any] | None:
        """The object that this key made (of any kind where none is named), or None.

        The answer is conclusive, because a key is bound in the transaction that stores its object.
        """
        with self._lock:
            row: sqlite3.Row | None = self._db.execute(
                "SELECT * FROM object WHERE (?1 IS NULL OR kind = ?1) AND key = ?2 ORDER BY id", (kind, key)
            ).fetchone()
        return None if row is None else _shown(row)

    def list_all(self, kind: Kind) -> list[dict[str, Any]]:
        """Every object of a kind, oldest first."""
        with self._lock:
            rows: list[sqlite3.Row] = self._db.execute("SELECT * FROM object WHERE kind = ? ORDER BY id", (kind,)).fetchall()
        return [_shown(row) for row in rows]

    def _insert_or_count(self, kind: Kind, key: str | None, text: str, digest: str) -> Stored:
        row: sqlite3.Row | None = self._db.execute(
            "INSERT INTO object (kind, key, body, digest) VALUES (?, ?, ?, ?) ON CONFLICT (kind, key) DO NOTHING RETURNING *",
            (kind, key, text, digest),
        ).fetchone()
        if row is not None:
            return Stored(_shown(row), replayed=False)
        repeated: sqlite3.Row | None = self._db.execute(
            "UPDATE object SET deliveries = deliveries + 1 WHERE kind = ? AND key = ? AND digest = ? RETURNING *",
            (kind, key, digest),
        ).fetchone()
        if repeated is None:
            raise KeyReusedError(key)
        return Stored(_shown(repeated), replayed=True)


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": f"{row['kind']}_{row['id']}",
        "key": row["key"],
        "deliveries": row["deliveries"],
        "created_at": row["created_at"],
        **json.loads(row["body"]),
    }

"""The cache of the index: one SQLite file for each folder of evidence. You may delete it at any time."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, final

__all__ = ["Cache", "Kept", "Row", "Watch"]

T = TypeVar("T")
Watch = Callable[[int, int], None]
"""Called with the number of bundles read so far, and the number to read."""

_BUSY_SECONDS = 10.0
_AT_ONCE = 500
"""Bundles per transaction. An interrupted read of thousands of bundles keeps all but the last few hundred."""
_UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip
"""Errors after which the cache is not used but kept: it is locked for long, or the disk is full or read-only."""
_TABLES = """
CREATE TABLE IF NOT EXISTS sources (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bundles (
    name BLOB PRIMARY KEY, fingerprint TEXT NOT NULL, problem TEXT NOT NULL, claim TEXT NOT NULL,
    document TEXT NOT NULL, sources TEXT NOT NULL
) WITHOUT ROWID;
"""


@final
@dataclass(frozen=True, slots=True)
class Row:
    """The content of one bundle for the cache. If there is a problem, the other fields are empty."""

    problem: str = ""
    claim: str = ""
    document: str = "{}"
    """A JSON text."""
    sources: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Kept:
    """The cache's row of one bundle."""

    problem: str
    text: str
    sources: Mapping[str, str]
    """Bundles with equal sources share one mapping."""


class Cache:
    """The rows of one folder of evidence."""

    def __init__(self, evidence: Path, folder: Path | None, version: int, make: Callable[[Path, str], Row]) -> None:
        """Args:
        evidence: the folder of evidence, an absolute path.
        folder: the folder of caches; None keeps no cache.
        version: the version of what `make` returns. A cache of another version is made anew.
        make: reads one bundle, given its folder and its fingerprint.
        """
        self._evidence, self._version, self._make = evidence, version, make
        key = hashlib.sha256(os.fsencode(evidence)).hexdigest()[:24]
        self._file = None if folder is None else folder / "index" / f"{key}.sqlite3"

    def rows(
        self,
        found: Mapping[bytes, str],
        claim: str | None,
        use: Callable[[bytes, Kept], T],
        watch: Watch | None = None,
    ) -> list[T]:
        """Apply `use` to what is kept of every bundle found, sorted by name.

        Args:
            found: the fingerprint of every bundle, by its path below the evidence.
            claim: if given, only bundles of this claim and unreadable ones.
            use: raises ValueError, KeyError or TypeError if a text is damaged.
            watch: called for every bundle that has to be read. If it raises, or the user presses Ctrl-C, at most the
                last few hundred bundles are lost from the cache.
        """

        def rows(database: str) -> list[T]:
            with closing(sqlite3.connect(database, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
                _prepare(connection, self._version)
                self._update(connection, found, watch)
                return [use(name, kept) for name, kept in _select(connection, found, claim)]

        if self._file is not None:
            for _ in range(2):
                try:
                    with suppress(FileExistsError):
                        self._file.parent.mkdir(parents=True)
                    return rows(str(self._file))
                except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                    if isinstance(error, OSError) or _primary_code(error) in _UNUSABLE:
                        break
                    with suppress(OSError):  # it is damaged; processes that have it open keep the old file
                        self._file.unlink()
        return rows(":memory:")

    def _update(self, connection: sqlite3.Connection, found: Mapping[bytes, str], watch: Watch | None) -> None:
        known: dict[bytes, str] = dict(connection.execute("SELECT name, fingerprint FROM bundles"))
        gone = [name for name in known if name not in found]
        changed = [name for name, fingerprint in found.items() if known.get(name) != fingerprint]
        for start in range(0, len(changed), _AT_ONCE):
            # Read the bundles before taking the lock, so that other commands wait only for the writing.
            made = []
            for done, name in enumerate(changed[start : start + _AT_ONCE], start + 1):
                made.append((name, found[name], self._make(self._evidence / os.fsdecode(name), found[name])))
                if watch is not None:
                    watch(done, len(changed))
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for name, fingerprint, row in made:
                    _insert(connection, name, fingerprint, row)
                connection.execute("COMMIT")
        if gone:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("DELETE FROM bundles WHERE name = ?", [(name,) for name in gone])
                connection.execute("DELETE FROM sources WHERE key NOT IN (SELECT sources FROM bundles)")
                connection.execute("COMMIT")


def _primary_code(error: Exception) -> int | None:
    """Return SQLite's primary error code; the higher bits only add detail."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _prepare(connection: sqlite3.Connection, wanted: int) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == wanted:
        return
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != wanted:  # no other process has done it since the first look
        for table in ("bundles", "sources"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in filter(str.strip, _TABLES.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {wanted}")
    connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, name: bytes, fingerprint: str, row: Row) -> None:
    sources = json.dumps(row.sources, sort_keys=True)
    key = hashlib.sha256(sources.encode()).hexdigest()[:24]
    connection.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (key, _checked(sources, key)))
    of = name, fingerprint, row.problem, row.claim, key
    values = (name, fingerprint, row.problem, row.claim, _checked(row.document, *of), key)
    connection.execute("INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?, ?)", values)


def _select(
    connection: sqlite3.Connection, found: Mapping[bytes, str], claim: str | None
) -> Iterator[tuple[bytes, Kept]]:
    every = connection.execute("SELECT key, document FROM sources")
    sources = {key: json.loads(_unchecked(text, key)) for key, text in every}
    query = "SELECT name, fingerprint, problem, claim, sources, document FROM bundles ORDER BY name"
    for name, fingerprint, problem, of, key, text in connection.execute(query):
        told = _unchecked(text, name, fingerprint, problem, of, key)
        if name in found and (claim is None or of in (claim, "")):
            yield name, Kept(problem, told, sources[key])


def _checked(text: str, *of: object) -> str:
    """Return a text behind a checksum of it and of what it belongs to. SQLite notices no changed byte in a text."""
    return f"{zlib.crc32(text.encode(), zlib.crc32(repr(of).encode())):08x}{text}"


def _unchecked(text: str, *of: object) -> str:
    if text != _checked(text[8:], *of):
        raise ValueError("the cache was changed by something else")
    return text[8:]

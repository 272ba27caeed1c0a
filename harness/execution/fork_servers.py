"""The fork servers of a run. Claims that import the same libraries use forks of one server with these libraries.

    first server ──▶ torch ──┬──▶ numpy, torch, transformers ──┬──▶ the server of a claim
                             │                                 └──▶ the server of a claim
                             └──▶ the server of a claim

An inner server imports the libraries that several claims share. Only a claim's own server imports the project's
modules, so that it reports the sources of that claim only.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import final

from harness.execution.fork_server import ForkServer, ForkServerError

__all__ = ["ForkServers"]

_Libraries = frozenset[str]
_NONE: _Libraries = frozenset()


@final
class ForkServers:
    """Starts a fork server for each claim of a run."""

    def __init__(
        self, first: Callable[[], ForkServer], libraries: Mapping[str, _Libraries], again: bool = False
    ) -> None:
        """Args:
        first: starts a server without imports.
        libraries: third-party modules that each claim imports, by the claim's id.
        again: whether claims start more than once. Then servers with libraries of a single claim are kept too.
        """
        self._start = first
        self._users = Counter(name for names in libraries.values() for name in names)
        self._shared = {
            claim: frozenset(name for name in names if again or self._users[name] > 1)
            for claim, names in libraries.items()
        }
        self._servers: dict[_Libraries, ForkServer] = {}
        """Servers by their imported libraries."""
        self._turns: dict[_Libraries, threading.Lock] = {}
        """A lock for each server, so that the slow imports of one server do not block the others."""
        self._is_closed = False
        self._begun: list[ForkServer] = []

    def begin(self) -> None:
        """Start the first server now, concurrently with other preparations of the run."""
        with suppress(OSError):  # `start` raises it again
            self._begun.append(self._start())

    def start(self, claim: str) -> ForkServer:
        """Start the server of a claim. The caller closes it.

        Raises:
            OSError: no process or folder can be created, or all servers are closed.
        """
        libraries = self._shared.get(claim, _NONE)
        try:
            return self._with(libraries).split(self._servers[_NONE]) if libraries else self._first()
        except ForkServerError:
            return self._first()  # a library ends what imports it; the claim's own imports will say so

    def close(self) -> list[str]:
        """End all servers. Returns files that are left."""
        self._is_closed = True
        servers = [*self._begun, *self._servers.values()]  # the first one is the ancestor of all
        self._begun.clear()
        self._servers.clear()
        return [left for server in reversed(servers) for left in server.close()]

    def _with(self, libraries: _Libraries) -> ForkServer:
        """Return the server with these libraries, forked from one with fewer."""
        with self._turns.setdefault(libraries, threading.Lock()):
            if not libraries and _NONE not in self._servers:
                self._servers[_NONE] = self._first()
            elif libraries not in self._servers:
                first = self._with(_NONE)
                nearest = max((known for known in list(self._servers) if known < libraries), key=len)
                further = sorted(libraries - nearest, key=lambda name: (-self._users[name], name))
                self._servers[libraries] = self._servers[nearest].split(first, further)
            return self._servers[libraries]

    def _first(self) -> ForkServer:
        if self._is_closed:
            raise OSError(errno.ECANCELED, "the run is over")
        with suppress(IndexError):
            return self._begun.pop()
        return self._start()

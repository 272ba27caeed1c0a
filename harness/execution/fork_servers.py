"""The fork servers of a run. Claims that import the same libraries get forks of one server, which has imported them.

    first server ──▶ torch ──┬──▶ transformers, numpy ──┬──▶ the server of a claim
                             │                          └──▶ the server of a claim
                             └──▶ the server of a claim

Each server between the first one and those of the claims has imported what all claims behind it import. The
project's own modules are imported by the claim's server alone, so that it reports the sources of that claim alone.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import final

from harness.execution.fork_server import ForkServer, ForkServerError

__all__ = ["ForkServers"]

_Path = tuple[str, ...]


@final
class ForkServers:
    """Starts a fork server for each claim of a run."""

    def __init__(
        self, first: Callable[[], ForkServer], libraries: Mapping[str, frozenset[str]], again: bool = False
    ) -> None:
        """Args:
        first: starts a server that has imported nothing.
        libraries: the modules from outside of the project that each claim of the run imports, by the claim's id.
        again: whether claims start more than once. All their libraries are then kept.
        """
        self._again = again
        self._start = first
        users = Counter(name for names in libraries.values() for name in names)
        self._paths: Mapping[str, _Path] = {
            claim: tuple(
                sorted((name for name in names if again or users[name] > 1), key=lambda name: (-users[name], name))
            )
            for claim, names in libraries.items()
        }
        """Paths through one tree: the libraries that each claim shares with other claims, the most common first."""
        self._servers: dict[_Path, ForkServer] = {}
        """The servers, by the libraries that they have imported."""
        self._turns: dict[_Path, threading.Lock] = {}
        """A lock for each server: a server answers only after its imports, and other servers need not wait for them."""
        self._is_closed = False
        self._begun: list[ForkServer] = []

    def begin(self) -> None:
        """Start the first server now. It starts beside what else a run does before its first trial."""
        with suppress(OSError):  # `start` raises it again
            self._begun.append(self._start())

    def start(self, claim: str) -> ForkServer:
        """Start the server of a claim. The caller closes it.

        Raises:
            OSError: the machine has no process or no folder for it, or all servers are closed.
        """
        path = self._paths.get(claim, ())
        forks = sorted(
            {_shared(path, other) for name, other in self._paths.items() if self._again or name != claim} - {0}
        )
        try:
            return self._at(path[: forks[-1]], forks).split(self._servers[()]) if forks else self._first()
        except ForkServerError:
            return self._first()  # a library ends what imports it; the claim's own imports will say so

    def close(self) -> list[str]:
        """End all servers. Returns what is left of their files."""
        self._is_closed = True
        servers = [*self._begun, *self._servers.values()]  # the first one is the ancestor of all
        return [left for server in reversed(servers) for left in server.close()]

    def _at(self, path: _Path, forks: Sequence[int]) -> ForkServer:
        """The server that has imported these libraries."""
        with self._turns.setdefault(path, threading.Lock()):
            if path not in self._servers:
                if not path:
                    self._servers[path] = self._first()
                else:
                    start = max((fork for fork in forks if fork < len(path)), default=0)
                    parent = self._at(path[:start], forks)
                    self._servers[path] = parent.split(self._servers[()], path[start:])
            return self._servers[path]

    def _first(self) -> ForkServer:
        if self._is_closed:
            raise OSError(errno.ECANCELED, "the run is over")
        with suppress(IndexError):
            return self._begun.pop()
        return self._start()


def _shared(left: _Path, right: _Path) -> int:
    """The number of libraries with which both paths begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))

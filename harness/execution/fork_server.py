"""The client of a fork server (`harness.execution.worker`): it starts the server, requests trials, and closes it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from harness.base.beneath import Beneath
from harness.base.redaction import allowed_environment, looks_secret
from harness.base.removal import remove
from harness.contract.installed import claims_roots
from harness.execution.messages import (
    IMPORTING,
    Import,
    Imports,
    MessageError,
    Request,
    Split,
    Splitting,
    Start,
    decode,
    encode,
)
from harness.machine.process_control import end_tree
from harness.machine.process_tree import started, stat_fields

__all__ = ["IMPORT_SECONDS", "PYTHON", "ForkServer", "ForkServerError", "server_environment"]

T = TypeVar("T")

IMPORT_SECONDS = 600.0
"""Time limit for imports. torch from a cold network drive takes minutes."""
_LARGEST_REPLY = 64 << 20
"""Maximum bytes of a response with the names and digests of all source files."""
_HARNESS = Path(__file__).parents[2]
_CHILD_PYTHON = Path(__file__).parent / "child_python"
_LOG = "server.log"
_LONGEST_SAID = 2000
"""Bytes of the server's log that an error message quotes."""


PYTHON = (sys.executable, "-P", "-m")
"""Runs a module of the harness in a project's root, even if the project has its own package `harness`."""


def server_environment(root: Path, admits: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of processes that import a project's code.

    Args:
        root: the root of the project.
        admits: names of variables to pass in addition to the allowlist.
    """
    environment = allowed_environment()
    environment |= {name: os.environ[name] for name in admits if name in os.environ and not looks_secret(name)}
    inherited = environment.get("PYTHONPATH")
    # Python processes that a trial starts use no cached bytecode of the project either.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_CHILD_PYTHON), inherited, str(_HARNESS)]))
    environment["HARNESS_SOURCE_ONLY"] = os.pathsep.join(map(str, (root, *claims_roots())))
    return environment


class ForkServerError(RuntimeError):
    """The fork server has ended. The message states how."""


class ForkServer:
    """A fork server and its scratch folder. The server and its descendants end on `close`, or with this process."""

    def __init__(
        self, root: Path, place: Beneath, control: socket.socket, process: subprocess.Popen[bytes] | _Forked
    ) -> None:
        self.folder = place.path
        self.place = place
        """The scratch folder. Code under test may have created links in it."""
        self._root, self._control, self._process = root, control, process
        self._began = started(process.pid)
        self._send = threading.Lock()

    @classmethod
    def started(
        cls, root: Path, search: Sequence[Path], others: Sequence[Path] = (), admits: Sequence[str] = ()
    ) -> ForkServer:
        """Start a server without imports.

        Args:
            search: import roots of the claim's project.
            others: import roots of the user's project, if that is another one.
            admits: names of environment variables to pass in addition to the allowlist.
        """
        folder = Path(tempfile.mkdtemp(prefix="falsifier-harness-"))
        place = Beneath(folder.parent, folder.name)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = server_environment(root, admits)
        # torch needs it for reproducible results
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # Waiting threads that spin make parallel trials many times slower.
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        command = [*PYTHON, "harness.execution.worker"]
        folders = json.dumps([[*map(str, search)], [*map(str, others)]])
        with there, (place / _LOG).create() as log:
            process = subprocess.Popen(
                [*command, str(there.fileno()), str(folder), str(root), folders],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        return cls(root, place, here, process)

    def split(self, first: ForkServer, libraries: Sequence[str] = ()) -> ForkServer:
        """Fork a server from this one, and import libraries into it.

        Args:
            first: the root of the tree of servers. It removes the new server's folder.

        Raises:
            ForkServerError: this server ended, or the imports took longer than IMPORT_SECONDS.
        """
        name = uuid.uuid4().hex[:12]
        place = first.place / name
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            place.make_folder()
            with there, (place / _LOG).create() as log:
                split = Split(name, tuple(libraries), self._root)
                answer = self._answer(Splitting, split, [there.fileno(), log.fileno()])
        except BaseException:
            here.close()
            raise
        return ForkServer(self._root, place, here, _Forked(answer.pid, here))

    def import_modules(self, modules: Sequence[str]) -> Imports:
        """Import modules into the server.

        Raises:
            ForkServerError: the server ended, or the imports took longer than IMPORT_SECONDS.
        """
        return self._answer(Imports, Import(tuple(modules), self._root), [])

    def _answer(self, kind: type[T], request: Request, descriptors: list[int]) -> T:
        """Send a request and return the server's response."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe:
            with open(writing, "wb"):
                self._ask(request, [*descriptors, writing])
            if not select.select([pipe], [], [], IMPORT_SECONDS)[0]:
                last = self._last_import()  # it is removed with the server
                self._process.terminate()
                raise ForkServerError(f"the imports took longer than {IMPORT_SECONDS:g} s{last}")
            reply = pipe.readline(_LARGEST_REPLY)
        if not reply:
            raise ForkServerError(f"{self._obituary()}{self._last_import()}")
        try:
            answer = decode(reply)
        except MessageError as error:  # an imported module can write to every descriptor
            raise ForkServerError(f"the fork server's answer to an import is garbled: {error}") from error
        if not isinstance(answer, kind):
            raise ForkServerError(f"the fork server answered with {type(answer).__name__} instead of {kind.__name__}")
        return answer

    def start(self, trial: Start, descriptors: list[int]) -> None:
        """Fork a trial with these descriptors: stdout, stderr and messages to write, control pipe and keys to read."""
        if self.obstacle:
            raise ForkServerError(self.obstacle)
        self._ask(trial, descriptors)

    @property
    def obstacle(self) -> str:
        """Return why the server cannot start a trial: it has ended or is suspended; empty if it can."""
        fields = stat_fields(self._process.pid)
        if fields is None or fields[0] in (b"Z", b"X"):
            return self._obituary()
        return "the fork server was stopped by a signal" if fields[0] in (b"T", b"t") else ""

    def _ask(self, request: Request, descriptors: list[int]) -> None:
        try:
            with self._send:
                socket.send_fds(self._control, [encode(request)], descriptors)
        except OSError as error:
            raise ForkServerError(self._obituary()) from error

    def close(self) -> list[str]:
        """Close the server, which ends its descendants, removes its folder and exits. Returns files that are left."""
        with suppress(OSError):  # it has ended
            self._control.shutdown(socket.SHUT_WR)
        self._process.terminate()  # it may be importing
        with suppress(OSError), open(os.pidfd_open(self._process.pid), "rb", buffering=0) as process:
            select.select([process], [], [], 5)  # Popen.wait sleeps up to 0.05 s too long
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            end_tree(self._process.pid, self._began)  # its descendants have no other parent while it exists
            self._process.wait()
        self._control.close()
        return remove(self.place)  # the server has done it, unless it was killed

    def _last_import(self) -> str:
        try:
            with (self.place / IMPORTING).opened() as file:
                last = file.read(_LONGEST_SAID).decode(errors="replace")
        except OSError:
            return ""
        return f"; the last import was that of {last}"

    def _obituary(self) -> str:
        try:
            code = self._process.wait(timeout=1)
            with (self.place / _LOG).opened() as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - _LONGEST_SAID))
                output = file.read(_LONGEST_SAID).decode(errors="replace")
            if size > _LONGEST_SAID:  # cut at the end of a line: half a secret cannot be recognised
                output = output.partition("\n")[2]
            output = output.strip()
        except (subprocess.TimeoutExpired, OSError):
            return "the fork server does not answer"
        return f"the fork server ended with status {code}{': ' + output if output else ''}"


class _Forked:
    """A server that is a child of another server. It closes its control socket before its process id is freed."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid, self._control = pid, control

    def terminate(self) -> None:
        """Send SIGTERM, if the server has not ended."""
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            self.wait(0)
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the server. Returns 0, because only its parent can read the exit status."""
        if not select.select([self._control], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("fork server", timeout or 0.0)
        return 0

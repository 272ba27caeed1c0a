"""Runs `harness` in forks of a process that has imported it already, so that a call costs no imports.

    preloaded = Preloaded()
    preloaded.run(["list"], folder, environment, seconds=10).returncode

A call behaves as `python -m harness` in a new process: it has arguments, folder, environment, streams, exit status and
signals of its own. Only the variables of Python itself (PYTHON*) are those of the first call.

Only calls of a command that works with torch wait for torch: the server imports it before the first one.

Protocol: each call is a connection over a Unix socket, announced by a byte that says whether it needs torch. The client
sends one JSON line, with stdout and stderr as file descriptors. The server answers with the exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_WITH_TORCH = ("probe", "roofline")
"""The commands that work with torch. It costs the server more time than everything else."""


class Preloaded:
    """The client. It starts the server at the first call; the server ends with this process."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command and wait for it.

        Raises:
            TimeoutExpired: the command took longer; it was killed.
        """
        call = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
        command = ["harness", *arguments]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        outputs = [os.pipe(), os.pipe()]
        with ours:
            try:
                with theirs, self._lock:
                    control = self._connected()
                    fds = [theirs.fileno(), *(write for _, write in outputs)]
                    socket.send_fds(control, [b"t" if arguments[:1] and arguments[0] in _WITH_TORCH else b"c"], fds)
            finally:
                for _, write in outputs:
                    os.close(write)
            readers = [_Reader(os.fdopen(read, "r", errors="strict")) for read, _ in outputs]
            ours.sendall(json.dumps(call).encode() + b"\n")
            ours.settimeout(120)  # the first call waits for the imports
            pid = int.from_bytes(_exactly(ours, 4), "little")
            ours.settimeout(seconds)
            try:
                status = int.from_bytes(_exactly(ours, 4), "little", signed=True)
            except TimeoutError as error:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, seconds) from error
            stdout, stderr = (reader.text(seconds) for reader in readers)
        return subprocess.CompletedProcess(command, status, stdout, stderr)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    process_group=0,
                )
        return self._socket


class _Reader:
    """Reads a stream to its end in a thread, as `subprocess.run` does."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._text = file, ""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._file:
            self._text = self._file.read()

    def text(self, seconds: float) -> str:
        """Everything that was written; TimeoutError if the stream stays open."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"a process still holds the output after {seconds:g} s")
        return self._text


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the preloaded process ended")
        data += piece
    return data


def _import_everything(*absent: str) -> None:
    """Import all of harness except the modules that need numpy, a trainer's library or an absent one.

    A module whose extra is not installed is left out.
    """
    import importlib
    import pkgutil

    import harness

    sys.modules.update(dict.fromkeys(absent))  # so that importing one fails
    for module in pkgutil.walk_packages(harness.__path__, "harness.", onerror=lambda name: None):
        is_slow = module.name.startswith("harness.tools.inspect.checkpoint") or module.name.endswith("_callback")
        if not is_slow and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for name in absent:
        del sys.modules[name]


def _serve(control: socket.socket) -> None:
    from harness.evidence import bundle_checks

    _import_everything("torch", "triton")
    bundle_checks.prepare()  # compiles the schemas
    has_torch = False
    gc.freeze()  # so that the collector of a fork leaves the server's objects, and so their pages, alone
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    message, fds, _flags, _address = socket.recv_fds(control, 1, 3)
                    if not message:
                        return
                    if message == b"t" and not has_torch:
                        _import_everything()
                        has_torch = True
                        gc.freeze()
                    connection = socket.socket(fileno=fds[0])
                    pid = os.fork()
                    if pid == 0:
                        for _, other in running.values():
                            other.detach()
                        selector.close()
                        control.close()
                        _become(connection, fds[1], fds[2])
                    os.close(fds[1])
                    os.close(fds[2])
                    connection.sendall(pid.to_bytes(4, "little"))
                    watched = os.pidfd_open(pid)
                    running[watched] = (pid, connection)
                    selector.register(watched, selectors.EVENT_READ)
                else:
                    assert isinstance(key.fileobj, int)
                    pid, connection = running.pop(key.fileobj)
                    selector.unregister(key.fileobj)
                    os.close(key.fileobj)
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with connection:
                        connection.sendall(status.to_bytes(4, "little", signed=True))


def _become(connection: socket.socket, stdout: int, stderr: int) -> None:
    """Turn this fork into one call of the command; never returns."""
    with connection, connection.makefile("rb") as file:
        call = json.loads(file.readline())
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, 64)
    # The server's streams remember that they were files, where these are pipes.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    tempfile.tempdir = None  # found anew from the variables
    sys.path[0] = os.getcwd()
    sys.argv = ["harness", *call["arguments"]]
    from harness.cli import main

    status: object = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    # An interpreter does this at its end, and also frees every module, which would copy all memory of the server.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))

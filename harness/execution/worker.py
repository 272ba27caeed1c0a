"""The fork server: it imports the falsifier's code once, and forks a process for each trial.

There are three processes below the harness:

    harness --control socket--> fork server --fork--> supervisor --fork--> trial

The fork server never uses CUDA, whose state cannot be forked. It can fork another fork server with its own control
socket, so that claims share the imports of libraries. The supervisor (`harness.execution.supervisor`) owns one trial's
process tree and outlives it. The trial runs the falsifier.

A trial sends each message (`harness.execution.messages`) to the harness immediately, so that measurements survive a
crash.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.base.shortening import described
from harness.contract.project_importer import install
from harness.execution.authentication import signer
from harness.execution.messages import (
    IMPORTING,
    Import,
    Imports,
    Lost,
    Split,
    Splitting,
    Start,
    decode,
    encode,
)
from harness.execution.sources import Sources
from harness.execution.supervisor import supervise
from harness.execution.trial_process import run_trial
from harness.machine.process_control import adopt_orphans, die_with_parent, end_descendants

__all__ = ["main"]

_LARGEST_REQUEST = 1 << 20
_LONGEST_TEXT = 200_000
"""Maximum characters of a reason or traceback. Texts are cut after their secrets are masked."""
_packages: set[str] = set()
"""The top-level packages of the claim's entry points; see `harness.contract.project_importer.install`."""
_children: set[int] = set()
"""Process ids of the supervisors and servers that this server has forked."""


def main(control_fd: int, folder: str, root: str, search: list[str], others: list[str]) -> None:
    """Serve until the harness closes the control socket or dies. Then end all descendants and remove `folder`.

    Args:
        root: the root of the project.
        search: import roots of the claim's project.
        others: import roots of the user's project, if that is another one.
    """
    _sources(Path(root))
    global _packages
    _packages = install([*map(Path, search)], [*map(Path, others)])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness handles Ctrl-C
    signal.signal(signal.SIGCHLD, lambda number, frame: _reap())
    os.set_inheritable(control_fd, False)
    place = Beneath(Path(folder).parent, Path(folder).name)
    _serve(socket.socket(fileno=control_fd), place, place)


def _serve(control: socket.socket, first: Beneath, place: Beneath, split: Split | None = None) -> NoReturn:
    """Run the loop of a fork server.

    Args:
        first: the folder of the first server.
        place: the folder of this server.
        split: the request that created this server; None for the first.
    """
    owner = os.getpid()
    abandoned: Beneath | None = None
    signal.signal(signal.SIGTERM, lambda number, frame: _leave(owner, 0))  # also during an import
    _at_hangup(control, lambda: _leave(owner, 0, place))
    adopt_orphans()
    code = 0
    try:
        if split is not None:
            _sources(split.root)
            for name in split.libraries:
                _import_library(name)
                if os.getpid() != owner:
                    os._exit(1)  # it forked, and this is its child
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, 6)
            if not request:
                abandoned = place
                break
            match decode(request):
                case Import(modules, root):
                    imported = _import(modules, root, place.path / IMPORTING)
                    if os.getpid() != owner:
                        os._exit(1)  # an imported module forked, and this is its child
                    (answer,) = descriptors
                    with open(answer, "wb") as pipe:  # one message of the socket can be too short
                        pipe.write(encode(imported) + b"\n")
                case Split() as split:
                    _split(split, descriptors, control, first)
                case Start() as trial:
                    _start(trial, descriptors, control)
    except ConnectionError:
        abandoned = place
    except Exception:
        traceback.print_exc()
        code = 1
    finally:
        _leave(owner, code, abandoned)


def _at_hangup(control: socket.socket, leave: Callable[[], None]) -> None:
    """Exit when the harness dies, even during an import that hangs."""
    state = select.poll()
    state.register(control, 0)  # a hang-up is always reported

    def check(*signalled: object) -> None:
        if state.poll(0):
            leave()

    signal.signal(signal.SIGIO, check)
    signal.siginterrupt(signal.SIGIO, False)  # a request must not interrupt the calls of a module that is imported
    fcntl.fcntl(control, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)
    check()


def _leave(owner: int, code: int, abandoned: Beneath | None = None) -> NoReturn:
    """End the server and its descendants. In an accidental fork of the server, end only this process.

    Args:
        abandoned: the server's folder, to remove it, if the harness has closed the control socket or died. Otherwise
            the harness still uses the folder.
    """
    if os.getpid() == owner:
        end_descendants()
        if abandoned is not None:
            remove(abandoned)  # the harness does it again, and says what is left
    os._exit(code)  # an interpreter with torch takes longer to shut down than all of the above


def _split(split: Split, descriptors: list[int], control: socket.socket, first: Beneath) -> None:
    """Fork another server. `descriptors` are its control socket, its log, and the pipe for the response."""
    parent = os.getpid()
    pid = os.fork()  # an OSError ends this server, and the harness then starts one for the claim
    if pid == 0:
        try:
            control.close()
            socket_end, log, answer = descriptors
            os.close(answer)
            os.setsid()
            die_with_parent(parent)
            _children.clear()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            os.set_inheritable(socket_end, False)
            _serve(socket.socket(fileno=socket_end), first, first / split.name, split)
        finally:
            os._exit(1)
    _children.add(pid)
    socket_end, log, answer = descriptors
    os.close(socket_end)
    os.close(log)
    with open(answer, "wb") as pipe:
        pipe.write(encode(Splitting(pid)) + b"\n")


def _import_library(name: str) -> None:
    """Import a module, or a name in one. A failure is ignored, because the claim's own import will report it."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except BaseException:
        with contextlib.suppress(BaseException):
            getattr(importlib.import_module(module), attribute)  # transformers imports its parts like this


def _import(modules: tuple[str, ...], root: Path, place: Path) -> Imports:
    """Import the modules of the entry points. A trial that needs a failed import repeats and reports it.

    Args:
        place: the file for the name of the module that is being imported, so that a hang can be reported.
    """
    sources = _sources(root)
    failures: dict[str, str] = {}
    for name in modules:
        _packages.add(name.partition(".")[0])
        with contextlib.suppress(OSError):
            place.write_text(name, encoding="utf-8")
        try:
            importlib.import_module(name)
        except BaseException as error:  # a module must not end the server, not even by SystemExit
            failures[name] = described(error)[:_LONGEST_TEXT]
    return Imports(failures, sources.news())


@cache
def _sources(root: Path) -> Sources:
    """Return the record of sources of the fork server. Trials inherit it and report only new ones."""
    sources = Sources(root)
    sources.listen()
    return sources


def _start(trial: Start, descriptors: list[int], control: socket.socket) -> None:
    stdout, stderr, messages, control_pipe, key, supervisors_key = descriptors
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    gc.freeze()  # a trial's collections need not look at what it shares with this process
    try:
        pid = os.fork()
    except OSError as error:  # no process is available; later trials may get one
        os.write(messages, signer(os.dup(supervisors_key))(encode(Lost(f"no process for the trial: {error}"))))
    else:
        if pid == 0:
            try:
                for number in (signal.SIGTERM, signal.SIGIO):
                    signal.signal(number, signal.SIG_DFL)
                control.close()
                os.dup2(stdout, 1)
                os.dup2(stderr, 2)
                os.close(stdout)
                os.close(stderr)
                supervise(
                    lambda may_exit: run_trial(trial, _sources(trial.root), messages, key, may_exit),
                    messages,
                    control_pipe,
                    supervisors_key,
                )  # never returns
            finally:
                # After any error, a supervisor must not continue as a second fork server.
                os._exit(1)
        _children.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)


def _reap() -> None:
    """Reap ended supervisors and servers. Other children belong to modules that started them during an import."""
    for pid in list(_children):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], *strictjson.loads(sys.argv[4]))

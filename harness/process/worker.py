"""The fork server: a process that has imported the falsifier's code once and forks a fresh process for every trial.

Three processes stand between the harness and the code under test:

    harness --control socket--> fork server --fork--> supervisor --fork--> trial

The fork server only imports and forks; it never touches CUDA, whose state cannot be forked. The supervisor (see
`harness.process.supervisor`) owns one trial's process tree and outlives everything in it. The trial runs the falsifier.

Everything a trial says goes as one JSON object a line through a pipe to the harness, as it happens, so that a crash
leaves what was known.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.contract.entry_point import resolve
from harness.observation import EndingKind
from harness.process import frameworks
from harness.process.blame import machine_fault
from harness.process.processes import adopt_orphans, end_descendants
from harness.process.supervisor import supervise
from harness.trial import NotMeasured, Setting, SubjectFault, Trial

__all__ = ["main"]

_LARGEST_REQUEST = 1 << 20
_HARNESS = Path(__file__).parents[1]
TRACEBACK_LIMIT = 20_000
_supervisors: set[int] = set()


def main(control_fd: int, folder: str, search: list[str]) -> None:
    """Serve until the harness closes the control socket or dies; then end every descendant and remove `folder`.

    `search` are the folders from which the project's code is imported.
    """
    sys.path[:0] = search
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the harness's to handle
    signal.signal(signal.SIGCHLD, lambda number, frame: _reap())
    adopt_orphans()
    control = socket.socket(fileno=control_fd)
    try:
        while True:
            request, descriptors, _, _ = socket.recv_fds(control, _LARGEST_REQUEST, 4)
            if not request:
                break
            message = json.loads(request)
            if message["do"] == "import":
                control.send(json.dumps(_import(message["modules"], Path(message["root"]))).encode())
            else:
                _start(message["trial"], descriptors, control)
    except ConnectionError:
        pass
    finally:
        end_descendants()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)  # the shutdown of an interpreter with torch in it takes longer than all of the above


def _import(modules: list[str], root: Path) -> dict[str, Any]:
    """Import the modules of the entry points; what fails fails again, and is reported, in the trial that needs it."""
    failures: dict[str, str] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does on import, even SystemExit, must not end the server
            failures[name] = f"{type(error).__name__}: {error}"
    if frameworks.cuda_was_initialised():
        failures["torch"] = (
            "CUDA was initialised by an import; move that into the subject, for a CUDA context cannot be forked"
        )
    return {"failures": failures, "sources": _sources(root)}


def _sources(root: Path) -> dict[str, str]:
    """The sha256 of every imported source file of the project, by its path from the root; the harness itself aside."""
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path:
            file = Path(path)
            ours = file.is_relative_to(_HARNESS) or "site-packages" in file.parts
            if file.is_relative_to(root) and not ours:
                found[file.relative_to(root).as_posix()] = hashlib.sha256(file.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def _start(trial: dict[str, Any], descriptors: list[int], control: socket.socket) -> None:
    stdout, stderr, messages, leash = descriptors
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    pid = os.fork()
    if pid == 0:
        control.close()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        supervise(lambda may_exit: _run(trial, messages, may_exit), messages, leash)  # never returns
    _supervisors.add(pid)
    for descriptor in descriptors:
        os.close(descriptor)


def _reap() -> None:
    """Forget the supervisors that have ended; other children belong to whoever started them during an import."""
    for pid in list(_supervisors):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _supervisors.discard(pid)


def _run(spec: dict[str, Any], messages: int, may_exit: int) -> None:
    """The body of a trial's process."""
    os.environ.update(spec["environment"])
    report = _reporter(messages)
    setting = Setting(
        parameters=spec["parameters"],
        device=spec["device"],
        seed=spec["seed"],
        workspace=Path(spec["workspace"]),
        cache=Path(spec["cache"]),
    )
    trial: Trial[Any] = Trial(setting, Path(spec["artifacts"]), frozenset(spec["declared"]), report)
    ending = _ending(lambda: _falsify(trial, spec), spec["memory_gib"])
    report({"kind": "end", **ending, "allocator_peak_bytes": frameworks.allocator_peak_bytes()})
    sys.stdout.flush()
    sys.stderr.flush()
    os.read(may_exit, 1)  # the harness looks at the driver's process list once more before this process is gone


def _falsify(trial: Trial[Any], spec: dict[str, Any]) -> None:
    falsify, subject = resolve(spec["falsifier"]), resolve(spec["subject"])
    frameworks.prepare(spec["seed"], spec["threads"])
    trial.build(subject)
    falsify(trial)


def _ending(work: Callable[[], None], memory_gib: float) -> dict[str, Any]:
    """How `work` ended; a subject that failed because this machine ran out of something is not to blame."""
    try:
        work()
    except NotMeasured as error:
        return {"ending": EndingKind.NOT_MEASURED, "reason": str(error) or "the falsifier gave no reason"}
    except SubjectFault as error:
        obstacle = machine_fault(error.__cause__, memory_gib)
        return {
            "ending": EndingKind.NOT_MEASURED if obstacle else EndingKind.SUBJECT_FAULT,
            "reason": f"{obstacle}: {error}" if obstacle else str(error),
            "traceback": traceback.format_exc()[-TRACEBACK_LIMIT:],
        }
    except BaseException as error:  # sys.exit() of a falsifier included: it is a fault, not an ending
        return {
            "ending": EndingKind.FALSIFIER_FAULT,
            "reason": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc()[-TRACEBACK_LIMIT:],
        }
    return {"ending": EndingKind.COMPLETED, "reason": ""}


def _reporter(descriptor: int) -> Callable[[dict[str, Any]], None]:
    owner = os.getpid()

    def report(message: dict[str, Any]) -> None:
        if os.getpid() != owner:
            return  # a fork of the subject's speaks for nobody
        line = memoryview(json.dumps(message).encode() + b"\n")
        while line:
            line = line[os.write(descriptor, line) :]

    return report


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])

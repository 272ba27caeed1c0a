"""Trials on this machine: each in its own process and session, bounded in time, watched from outside."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import selectors
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.base.redaction import Redactor
from harness.contract import Contract
from harness.contract.project import Project
from harness.execution.executor import Imports, StepListener, TrialRequest, TrialResult
from harness.execution.fork_server import ForkServer, ForkServerError
from harness.execution.logs import BoundedLog
from harness.execution.steps import StepSeries
from harness.execution.supervisor import FINISH, STOP
from harness.execution.worker import LARGEST_MESSAGE
from harness.judging.observation import Ending, EndingKind, Observation, Phase, Residency
from harness.machine.host import Gpu
from harness.machine.telemetry import Sampler, Telemetry

__all__ = ["LocalExecutor"]

TEARDOWN_SECONDS = 10.0
"""How long a trial that was told to end, or has said its last word, may take before it counts as lost."""
_ECHO_SECONDS = 1.0
"""How long after a trial's death by one of _REQUESTS the same request may take to reach us."""
_REQUESTS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU")
"""What schedulers and terminals send to every process of a job, ours and the trial's alike."""
_PIPE_BYTES = 1 << 20
_TICK = 0.1
_COLUMNS = frozenset({"step", "seconds"})
"""Of the step series, the harness's own."""
_LONGEST_REASON, _LONGEST_TRACEBACK = 2_000, 20_000
"""Characters that an ending keeps."""


class LocalExecutor:
    """Runs the trials of one contract in forks of one server that has imported its code."""

    def __init__(
        self, project: Project, contract: Contract, gpu: Gpu | None, cache: Path, admits: Sequence[str] = ()
    ) -> None:
        """Args:
        admits: variables of the environment that trials get beyond those that every trial gets.
        """
        self._project, self._contract, self._gpu, self._cache = project, contract, gpu, cache
        self._admits = admits
        self._interrupted = threading.Event()
        self._redactor = Redactor()
        self._lost: ForkServerError | None = None
        """Why there is no fork server to ask for trials."""

    def __enter__(self) -> LocalExecutor:
        self._server = ForkServer(self._project.root, self._project.search, self._admits)
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.close()

    def imports(self) -> Imports:
        """Import the contract's entry points into the fork server."""
        modules = list(dict.fromkeys(entry.partition(":")[0] for entry in self._contract.entry_points))
        try:
            answer = self._server.import_modules(modules)
        except ForkServerError as error:
            self._lost = error
            return Imports({"fork server": str(error)}, {})
        return Imports(answer["failures"], answer["sources"])

    def interrupt(self) -> None:
        """End every running trial within the tick of its watcher."""
        self._interrupted.set()

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        """Run one trial and gather everything it said and did."""
        folder = self._server.folder / uuid.uuid4().hex[:12]
        masked = lru_cache(maxsize=256)(self._redactor.mask)  # the same few names come with every step
        watch = _Watch(time.monotonic(), request.seconds, Sampler(self._gpu), on_step, self._interrupted, masked)
        try:
            for place in (folder / "workspace", folder / "artifacts", self._cache):
                place.mkdir(parents=True, exist_ok=True)
            strictjson.dump(_claim(request), folder / "claim.json")
            if self._lost is not None:
                raise self._lost
            with _pipes() as (ours, theirs):
                self._server.start(self._spec(request, folder), theirs)
                for descriptor in theirs:
                    os.close(descriptor)
                theirs.clear()
                watch.follow(*ours)
        except (ForkServerError, OSError) as error:  # no descriptors or no space: the machine's, whatever was measured
            watch.ending = Ending(EndingKind.LOST, watch.phase, _told(error, folder))
        finally:
            telemetry = watch.sampler.stop()
        shutil.rmtree(folder / "workspace", ignore_errors=True)  # checkpoints of twenty trials would fill a disk
        (folder / "claim.json").unlink(missing_ok=True)
        mask = self._redactor.mask_json
        ending = watch.ending or watch.vanished()
        observation = Observation(
            subject=request.subject,
            profile=request.profile,
            parameters=request.parameters,
            device=request.device,
            measurements=mask(strictjson.untag_nonfinite(watch.measurements)),
            resolved=mask(watch.resolved),
            residency=_residency(watch, telemetry, self._gpu),
            ending=replace(
                ending,
                reason=_cut(mask(ending.reason)),
                traceback=mask(ending.traceback or "")[-_LONGEST_TRACEBACK:] or None,
            ),
            seed=request.seed,
            unseen={name: _cut(str(why)) for name, why in mask(watch.unseen).items()},
        )
        return TrialResult(
            observation,
            watch.steps.close(),
            telemetry,
            watch.stdout.close(self._redactor),
            watch.stderr.close(self._redactor),
            folder / "artifacts",
            watch.seconds,
            watch.sources,
        )

    def _spec(self, request: TrialRequest, folder: Path) -> dict[str, Any]:
        # The trial sees the leased GPU as cuda:0, and no GPU at all where it has no lease on one.
        visible = {"CUDA_VISIBLE_DEVICES": self._gpu.uuid or str(self._gpu.index) if self._gpu else ""}
        return {
            "root": str(self._project.root),
            "falsifier": request.contract.falsifier,
            "subject": request.subject,
            "parameters": dict(request.parameters),
            "device": "cuda:0" if request.device.is_cuda else "cpu",
            "seed": request.seed,
            "threads": request.threads,
            "workspace": str(folder / "workspace"),
            "artifacts": str(folder / "artifacts"),
            "cache": str(self._cache),
            "memory_gib": request.contract.profiles[request.profile].requires.get("memory_gib", 0.0),
            "declared": sorted(request.contract.measurements),
            "claim": str(folder / "claim.json"),
            "environment": visible,
        }


@dataclass
class _Watch:
    """What one trial has said so far, and the loop that listens."""

    started: float
    limit: float
    sampler: Sampler
    on_step: StepListener
    interrupted: threading.Event
    mask: Callable[[str], str]
    """Applied to the names of what a step tells, which a subject may choose; the rest is masked once it is whole."""
    measurements: dict[str, Any] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    steps: StepSeries = field(default_factory=StepSeries)
    sources: dict[str, str] = field(default_factory=dict)
    phase: Phase = Phase.START
    ending: Ending | None = None
    allocator_peak_bytes: int | None = None
    seconds: float = 0.0
    stdout: BoundedLog = field(default_factory=BoundedLog)
    stderr: BoundedLog = field(default_factory=BoundedLog)
    _ended: bool = False
    _exited: bool = False
    _garbled: str = ""
    _unread: bytes = b""
    _give_up: float | None = None

    def follow(self, stdout: int, stderr: int, messages: int, leash: int) -> None:
        """Listen until the trial and everything it started are gone."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (stdout, stderr, messages):
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map() and not self._exited:
                for key, _ in selector.select(_TICK):
                    chunk = os.read(key.fd, _PIPE_BYTES)
                    if not chunk:
                        selector.unregister(key.fd)
                        self._exited = self._exited or key.fd == messages  # the supervisor itself is gone
                    elif key.fd == messages:
                        self._hear(chunk, leash)
                    else:
                        (self.stdout if key.fd == stdout else self.stderr).feed(chunk)
                if not self._keep_waiting(leash):
                    break
        self.seconds = self.seconds or time.monotonic() - self.started
        for descriptor, log in ((stdout, self.stdout), (stderr, self.stderr)):
            # What is still in the pipe; not more, for something that could not be ended may write for ever.
            os.set_blocking(descriptor, False)
            with suppress(BlockingIOError):
                log.feed(os.read(descriptor, _PIPE_BYTES))
        if self._garbled and self.ending is not None and self.ending.kind is EndingKind.COMPLETED:
            self.ending = Ending(
                EndingKind.LOST, self.phase, f"something that the trial reported was lost: {self._garbled}"
            )

    def _keep_waiting(self, leash: int) -> bool:
        now = time.monotonic()
        if self._give_up is not None:
            return now < self._give_up
        if self.ending is not None:
            self._give_up = now + TEARDOWN_SECONDS
        elif self.interrupted.is_set():
            self._stop(Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted"), leash)
        elif now - self.started > self.limit:
            reason = f"no end after {self.limit:g} s, which is all that it may take; stderr ends with the stack"
            self._stop(Ending(EndingKind.TIMED_OUT, self.phase, reason), leash)
        return True

    def _stop(self, ending: Ending, leash: int) -> None:
        self.ending = ending
        self.seconds = time.monotonic() - self.started
        self._give_up = time.monotonic() + TEARDOWN_SECONDS
        with suppress(BrokenPipeError):
            os.write(leash, STOP)

    def _hear(self, chunk: bytes, leash: int) -> None:
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) > LARGEST_MESSAGE:
            lines, self._unread = [*lines, self._unread[:100]], b""
        for line in filter(None, lines):
            try:
                message = json.loads(line)
                self._understand(message, message["kind"], leash)
            except (ValueError, LookupError, TypeError, RecursionError):
                # Cut short by the death of its writer, as a rule; who goes on to the end has lost a measurement.
                self._garbled = self._garbled or line[:100].decode(errors="replace")

    def _understand(self, message: dict[str, Any], kind: str, leash: int) -> None:
        if self._ended and kind != "exit":
            return  # a thread that the subject left behind goes on; what it says comes too late
        if kind == "step":
            values = {self._column(name): value for name, value in message["values"].items()}
            self.steps.add({"step": message["step"], "seconds": round(time.monotonic() - self.started, 6), **values})
            self.on_step(message["step"], strictjson.untag_nonfinite(values), self._memory())
        elif kind == "measure":
            self.measurements.update(message["values"])
        elif kind == "unseen":
            self.unseen.update(message["values"])
        elif kind == "resolve":
            self.resolved.update(message["values"])
        elif kind == "sources":
            self.sources.update(message["values"])
        elif kind == "phase":
            self.phase = Phase(message["phase"])
        elif kind == "pid":
            self.sampler.watch(message["pid"])
        elif kind == "lost":
            self.ending = Ending(EndingKind.LOST, self.phase, message["reason"])
        elif kind == "end":
            self._end(message, leash)
        elif kind == "exit":
            self._exit(message)

    def _column(self, name: str) -> str:
        """The name of a step's value, as a column beside those of the harness."""
        masked = self.mask(name)
        return f"own_{masked}" if masked in _COLUMNS else masked

    def _memory(self) -> int | None:
        latest = self.sampler.latest
        memory = latest.get("gpu_process_memory_bytes") or latest.get("rss_bytes")
        return None if memory is None else int(memory)

    def _end(self, message: dict[str, Any], leash: int) -> None:
        self._ended = True
        if self.ending is None:
            self.seconds = time.monotonic() - self.started
            self.ending = Ending(
                EndingKind(message["ending"]), self.phase, message["reason"], traceback=message.get("traceback")
            )
            self.allocator_peak_bytes = message["allocator_peak_bytes"]
            self.sampler.sample()
        with suppress(BrokenPipeError):
            os.write(leash, FINISH)

    def vanished(self) -> Ending:
        """The ending of a trial whose supervisor is gone without a word."""
        if self.interrupted.wait(_ECHO_SECONDS):
            return Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted")
        return Ending(EndingKind.LOST, self.phase, "the trial vanished without a word")

    def _exit(self, message: dict[str, Any]) -> None:
        self._exited = True
        if self.ending is not None:
            return
        if message.get("signal") in _REQUESTS and self.interrupted.wait(_ECHO_SECONDS):
            # A job's every process was asked to end; that the trial heeded it first is no defect of the subject.
            self.ending = Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted")
            return
        if "signal" in message:
            # Nobody but the kernel or an administrator sends SIGKILL: that is no verdict on the subject.
            kind = EndingKind.KILLED if message["signal"] == "SIGKILL" else EndingKind.DIED
            hint = " (the kernel does that when memory runs out)" if kind is EndingKind.KILLED else ""
            self.ending = Ending(kind, self.phase, f"ended by {message['signal']}{hint}", signal=message["signal"])
        else:
            self.ending = Ending(
                EndingKind.DIED, self.phase, f"exited with status {message['code']} before its end", message["code"]
            )


def _told(error: Exception, folder: Path) -> str:
    """Why a trial could not be started, with the remedy where that is known."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.filename or folder}: {error.strerror}; free some space there, or set TMPDIR to another folder"
    return str(error)


def _claim(request: TrialRequest) -> dict[str, Any]:
    """What a trial needs to search: see `harness.search.explorer`."""
    return {"contract": request.contract.document, "device": request.device.to_json(), "case": request.case}


@contextmanager
def _pipes() -> Iterator[tuple[list[int], list[int]]]:
    """Our ends and the trial's of stdout, stderr, messages and the leash; close the trial's once they are passed on."""
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(3):
            reading, writing = os.pipe()
            ours.append(reading)
            theirs.append(writing)
            with suppress(OSError):  # beyond the user's pipe quota the default size does too
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        reading, writing = os.pipe()
        ours.append(writing)
        theirs.append(reading)
        yield ours, theirs
    finally:
        for descriptor in (*ours, *theirs):
            os.close(descriptor)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"


def _residency(watch: _Watch, telemetry: Telemetry, gpu: Gpu | None) -> Residency:
    if gpu is None:
        return Residency(reason="the trial had no GPU")
    driver = telemetry.residency
    return Residency(watch.allocator_peak_bytes, driver.seen, driver.peak_bytes, driver.reason)

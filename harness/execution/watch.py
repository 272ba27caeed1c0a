"""Monitors one trial: a loop that collects its messages until all its processes have ended."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from harness.authoring.reports import Measured, Resolved, Stepped, Unseen
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase
from harness.execution.authentication import Forged, Verifier, new_key
from harness.execution.executor import StepListener
from harness.execution.logs import BoundedLog, StepSeries
from harness.execution.messages import (
    LARGEST_MESSAGE,
    MOST_COLUMNS,
    Ended,
    Exited,
    Lost,
    MessageError,
    Read,
    Received,
    Started,
    decode,
)
from harness.execution.progress import Progress
from harness.execution.supervisor import END, FINISH, STOP
from harness.execution.trial_log import TrialLog, WorkspaceFiles
from harness.judging.observation import Ending, EndingKind, Residency
from harness.machine import process_tree
from harness.machine.host import Gpu
from harness.machine.process_control import end_tree
from harness.machine.telemetry import Sampler, Telemetry

__all__ = ["TEARDOWN_SECONDS", "Watch"]

TEARDOWN_SECONDS = 10.0
"""Seconds for a trial to end after a request or after its last message. After that it counts as lost."""
_ECHO_SECONDS = 1.0
"""Seconds within which a signal of _REQUESTS that ended a trial can also reach the harness."""
_REQUESTS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU")
"""Signals that schedulers and terminals send to all processes of a job, including the harness."""
_PIPE_BYTES = 1 << 20
_MASKED = 16 << 10
"""Bytes of an invalid line that are masked. The reason shows its first 100 characters."""
_TICK = 0.1
_LOOK_SECONDS = 0.5
"""Seconds between two scans of the workspace."""
_COLUMNS = frozenset({"step", "seconds"})
"""The harness's own columns of the step series."""


@dataclass
class Watch:
    """The state of one trial, and the loop that reads its messages."""

    progress: Progress
    sampler: Sampler
    on_step: StepListener
    interrupted: threading.Event
    mask: Callable[[str], str]
    """Masks the names of step values, which a subject can choose. Other texts are masked once they are complete."""
    log: TrialLog
    files: WorkspaceFiles
    is_timed: bool = False
    """Whether the claim measures time. Then the workspace is not scanned while the trial runs."""
    refutes: Callable[[JsonObject], bool] = lambda measurements: False
    """Returns whether measurements already refute a mutant. Its trial then ends."""
    keys: tuple[bytes, bytes] = field(default_factory=lambda: (new_key(), new_key()))
    """The keys for messages of the trial and of its supervisor."""
    measurements: dict[str, Any] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, Any] = field(default_factory=dict)
    steps: StepSeries = field(default_factory=StepSeries)
    sources: dict[str, str] = field(default_factory=dict)
    ending: Ending | None = None
    allocator_peak_bytes: int | None = None
    seconds: float = 0.0
    stdout: BoundedLog = field(default_factory=BoundedLog)
    stderr: BoundedLog = field(default_factory=BoundedLog)
    _ended: bool = False
    _exited: bool = False
    _supervisor: tuple[int, int | None] | None = None
    """Process id and start time of the supervisor."""
    _confirmed: bool = False
    """Whether the supervisor reported that all processes have ended."""
    _garbled: str = ""
    """The beginning of the first line without a valid signature."""
    _is_lost: bool = False
    """Whether a message followed it. If not, it may be the truncated last line of a trial that died."""
    _columns: set[str] = field(default_factory=set)
    _unread: bytes = b""
    _looked: float = 0.0
    _verifiers: tuple[Verifier, Verifier] = field(init=False)
    _give_up: float | None = None

    def __post_init__(self) -> None:
        trial, supervisor = self.keys
        self._verifiers = Verifier(trial), Verifier(supervisor)

    @property
    def phase(self) -> Phase:
        """The phase that the trial is in."""
        return self.progress.phase

    def follow(self, stdout: int, stderr: int, messages: int, control_pipe: int) -> None:
        """Read messages until the trial and all its processes have ended."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (stdout, stderr, messages):
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map() and not self._exited:
                for key, _ in selector.select(_TICK):
                    chunk = os.read(key.fd, _PIPE_BYTES)
                    if not chunk:
                        selector.unregister(key.fd)
                        self._exited = self._exited or key.fd == messages  # the supervisor itself has ended
                    elif key.fd == messages:
                        self._hear(chunk, control_pipe)
                    else:
                        (self.stdout if key.fd == stdout else self.stderr).feed(chunk)
                if not self._keep_waiting(control_pipe):
                    break
        self.seconds = self.seconds or time.monotonic() - self.progress.started
        if not self._confirmed:
            self._end_unconfirmed()
        for descriptor, log in ((stdout, self.stdout), (stderr, self.stderr)):
            # Read only what is in the pipe now: a process that could not be ended may write forever.
            os.set_blocking(descriptor, False)
            with suppress(BlockingIOError):
                log.feed(os.read(descriptor, _PIPE_BYTES))
        lacks = self._ended and self._verifiers[0].lacks
        if (self._is_lost or lacks) and self.ending is not None and self.ending.kind is not EndingKind.INTERRUPTED:
            self.ending = Ending(EndingKind.GARBLED, self.phase, self._garbled)

    def _end_unconfirmed(self) -> None:
        """End a trial whose supervisor was suspended or killed."""
        if self._supervisor is not None:
            end_tree(*self._supervisor)
        if self.ending is not None and self.ending.kind is EndingKind.COMPLETED:
            self.ending = Ending(EndingKind.LOST, self.phase, "the trial's supervisor did not confirm its end")

    def _keep_waiting(self, control_pipe: int) -> bool:
        now = time.monotonic()
        if not self.is_timed and now - self._looked > _LOOK_SECONDS:
            self._looked = now
            for line in self.files.saved():
                self.log.write(line, line.partition(",")[0])
        if self._give_up is not None:
            return now < self._give_up
        if self.ending is not None:
            self._give_up = now + TEARDOWN_SECONDS
        elif self.interrupted.is_set():
            self._stop(Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted"), control_pipe)
        elif self.progress.over(now) and (kind := self.progress.over(now, self.sampler.starved())):
            reason = f"{self.progress.reason(kind, now)}; trials.log ends with the stack"
            self._stop(Ending(kind, self.phase, reason), control_pipe)
        return True

    def _stop(self, ending: Ending, control_pipe: int, command: bytes = STOP) -> None:
        self.ending = ending
        self.seconds = time.monotonic() - self.progress.started
        self._give_up = time.monotonic() + TEARDOWN_SECONDS
        with suppress(BrokenPipeError):
            os.write(control_pipe, command)

    def _hear(self, chunk: bytes, control_pipe: int) -> None:
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        if len(self._unread) > LARGEST_MESSAGE:
            lines, self._unread = [*lines, self._unread[:_MASKED]], b""
        for line in filter(None, lines):
            try:
                message = decode(self._opened(line))
            except (Forged, MessageError):
                self._garble(line)
            else:
                self._understand(message, control_pipe)

    def _opened(self, line: bytes) -> bytes:
        """Return the text of a line. Raises Forged if neither the trial nor its supervisor wrote it."""
        trial, supervisor = self._verifiers
        try:
            return trial.opened(line)
        except Forged:
            return supervisor.opened(line)

    def _garble(self, line: bytes) -> None:
        # Masked before it is cut, because a part of a secret cannot be recognized.
        self._garbled = self._garbled or self.mask(line[:_MASKED].decode(errors="replace"))[:100]

    def _understand(self, message: Received, control_pipe: int) -> None:
        is_over = self._ended or (self.ending is not None and self.ending.kind is EndingKind.REFUTED)
        if is_over and not isinstance(message, Exited):
            return  # a message of a thread that the subject left running is too late
        if self._garbled and not isinstance(message, Exited):
            self._is_lost = True  # its writer lives, so that it was not cut short by the end of the trial
        self.log.hear(message)
        self.progress.hear(message, time.monotonic())
        match message:
            case Stepped(step, values):
                self._step(step, values)
            case Measured(values):
                self.measurements.update(values)
                if self.ending is None and self.refutes(self.measurements):
                    self._stop(Ending(EndingKind.REFUTED, self.phase), control_pipe, END)
            case Unseen(values):
                self.unseen.update(values)
            case Resolved(values):
                self.resolved.update(values)
            case Read(sources):
                self.sources.update(sources)
            case Started(pid, supervisor):
                self._supervisor = supervisor, process_tree.started(supervisor)
                self.sampler.watch(pid)
            case Lost(reason):
                self.ending = Ending(EndingKind.LOST, self.phase, reason)
            case Ended():
                self._end(message, control_pipe)
            case Exited():
                self._exit(message)

    def _step(self, step: int, values: JsonObject) -> None:
        named = {self._column(name): value for name, value in values.items()}
        columns = self._columns | named.keys()
        if len(columns) > MOST_COLUMNS:
            self._garble(f"more than {MOST_COLUMNS} names of step values".encode())
            return
        self._columns = columns
        self.steps.add({"step": step, "seconds": round(time.monotonic() - self.progress.started, 6), **named})
        self.on_step(step, named, self._memory())

    def _column(self, name: str) -> str:
        """Return the column of a step's value. It differs from the harness's own columns."""
        masked = self.mask(name)
        return f"own_{masked}" if masked in _COLUMNS else masked

    def _memory(self) -> int | None:
        latest = self.sampler.latest
        memory = latest.get("gpu_process_memory_bytes") or latest.get("rss_bytes")
        return None if memory is None else int(memory)

    def _end(self, message: Ended, control_pipe: int) -> None:
        self._ended = True
        if self.ending is None:
            self.seconds = time.monotonic() - self.progress.started
            self.ending = Ending(message.kind, self.phase, message.reason, traceback=message.traceback)
            self.allocator_peak_bytes = message.allocator_peak_bytes
            self.sampler.sample()
        with suppress(BrokenPipeError):
            os.write(control_pipe, FINISH)

    def vanished(self) -> Ending:
        """Return the ending of a trial whose supervisor ended without a message."""
        if self.interrupted.wait(_ECHO_SECONDS):
            return Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted")
        return Ending(EndingKind.LOST, self.phase, "the process of the trial ended without a message")

    def _exit(self, message: Exited) -> None:
        self._exited = self._confirmed = True
        if self.ending is not None:
            return
        if message.signal in _REQUESTS and self.interrupted.wait(_ECHO_SECONDS):
            # All processes of the job get the signal, so it is not the subject's fault that the trial ended first.
            self.ending = Ending(EndingKind.INTERRUPTED, self.phase, "the run was interrupted")
            return
        if message.signal is not None:
            # Only the kernel or an administrator sends SIGKILL. It is not the subject's fault.
            kind = EndingKind.KILLED if message.signal == "SIGKILL" else EndingKind.DIED
            hint = " (the kernel does that when memory runs out)" if kind is EndingKind.KILLED else ""
            self.ending = Ending(kind, self.phase, f"ended by {message.signal}{hint}", signal=message.signal)
        else:
            self.ending = Ending(
                EndingKind.DIED, self.phase, f"exited with status {message.code} before its end", message.code
            )

    def residency(self, telemetry: Telemetry, gpu: Gpu | None) -> Residency:
        """Return whether the trial used the GPU, according to its allocator and the driver."""
        if gpu is None:
            return Residency(reason="the trial had no GPU")
        driver = telemetry.residency
        return Residency(self.allocator_peak_bytes, driver.seen, driver.peak_bytes, driver.reason)

"""Calls functions and commands with a time limit. A driver, a tool or a network folder may never answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from harness.base.shortening import described

__all__ = ["Answer", "call", "output", "run"]

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A value, or None with the reason why there is none."""

    value: T | None
    reason: str | None = None


def call(function: Callable[[], T], seconds: float) -> Answer[T]:
    """Call a function in a daemon thread and wait up to `seconds`. An exception becomes the reason.

    A call that hangs inside a driver cannot be stopped. Its thread ends with the process.
    """
    answers: list[Answer[T]] = []

    def work() -> None:
        try:
            answers.append(Answer(function()))
        except Exception as error:
            answers.append(Answer(None, described(error)))

    thread = threading.Thread(target=work, name="harness-timebox", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else Answer(None, f"no answer within {seconds:g} s")


def run(command: Sequence[str], seconds: float) -> Answer[str]:
    """Run a command and return its stdout as text. See `output`."""
    answer = output(command, seconds)
    if answer.value is None:
        return Answer(None, answer.reason)
    return Answer(answer.value.decode("utf-8", "replace").replace("\r\n", "\n"))


def output(
    command: Sequence[str], seconds: float, *, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Answer[bytes]:
    """Run a command and return its stdout. The reason for a failure ends with the last line of its stderr.

    When the time is up, the command and the processes of its session are killed.
    """
    import subprocess

    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(
            command,
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer(None, f"{name} does not start: {getattr(error, 'strerror', None) or error}")
    try:
        written, errors = process.communicate(stdin or None, timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # A grandchild in another session may keep the pipes open. Do not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return Answer(None, f"{name} gave no answer within {seconds:g} s")
    if process.returncode != 0:
        lines = (errors.strip() or written.strip()).decode("utf-8", "replace").splitlines()
        detail = f": {lines[-1].strip()[:200]}" if lines else ""
        return Answer(None, f"{name} ended with status {process.returncode}{detail}")
    return Answer(written)

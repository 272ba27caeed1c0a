"""One job of Slurm, by `srun`: start it, read its output, end it, and ask Slurm for its state."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from harness.tools.slurm.judged_bundle import NAME

__all__ = ["Job", "ask"]

_ASK_SECONDS = 30.0
"""How long a busy controller may take to answer a question."""
_MOST_LINES = 20
_LOOK_SECONDS, _SETTLE_SECONDS = 0.5, 10.0
"""How often, and for how long, to ask for the state of a job that failed. Slurm knows it some seconds later."""
_UNSETTLED = ("RUNNING", "COMPLETING")
_OURS = re.compile(r"(?:srun|slurmstepd[^:]*): ?(?:error: )?(.*)")
_CHATTER = re.compile(r"Force Terminated|interrupt \(one more|step creation temporarily|^\S+: tasks? \S+: Exited")
_NUMBER = re.compile(r"\bjob (\d+)\b|\bStepId=(\d+)|\bSTEP (\d+)")


@final
class Job:
    """A command that Slurm runs once, on one node.

    `srun` gets a session of its own, so that Ctrl-C does not reach it. The session id finds the job in the queue.
    """

    def __init__(self, options: Sequence[str], command: Sequence[str], folder: Path, name: str = "") -> None:
        """Submit it.

        Args:
            name: of the run, for the command's environment.

        Raises:
            OSError: `srun` cannot be started.
        """
        self._process = subprocess.Popen(
            ["srun", "--nodes=1", "--ntasks=1", "--mpi=none", "--input=none", f"--chdir={folder}", *options, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            env={**os.environ, NAME: name},
            start_new_session=True,
        )
        self._said: deque[str] = deque(maxlen=_MOST_LINES)
        self._state = ""
        self._preempted = False
        self._number: str | None = None

    def follow(self, on_line: Callable[[str], None], on_word: Callable[[str], None]) -> int:
        """Listen until the job has ended. Returns the exit status of its command; not 0 if it had none.

        Args:
            on_line: takes every line of the command's standard output.
            on_word: takes every other line: Slurm's, and the command's standard error.
        """
        assert self._process.stdout is not None
        listener = threading.Thread(target=self._listen, args=(on_word,), daemon=True)
        listener.start()
        for line in self._process.stdout:
            on_line(line)
        status = self._process.wait()
        listener.join()
        deadline = time.monotonic() + _SETTLE_SECONDS
        self._look()
        while status and self._state in _UNSETTLED and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            self._look()
        return status

    @property
    def number(self) -> str | None:
        """The id of the job; None until Slurm has accepted it."""
        if self._number is None:
            self._look()
        return self._number

    def ended_by(self) -> str:
        """Return the end of the job, in Slurm's words: its state if it is known, and the messages of `srun`."""
        where = f"Slurm job {self._number}" if self._number else "Slurm"
        words = "; ".join(dict.fromkeys(line for line in self._said if not _CHATTER.search(line)))
        state = "PREEMPTED" if self._preempted else self._state
        return f"{where} {state}".rstrip() + (f": {words}" if words else "")

    def interrupt(self) -> None:
        """Ask the command to seal and to end. A job that still waits in the queue is cancelled."""
        self._look()  # it may have waited when it was last seen
        if self._number is not None and self._state == "RUNNING":
            ask(["scancel", "--signal=TERM", self._number])
        else:
            self.cancel()

    def cancel(self) -> None:
        """Have Slurm end the job. One that Slurm has not accepted yet is withdrawn."""
        if self.number is not None:
            ask(["scancel", self._number or ""])
        else:
            self._process.terminate()

    def _listen(self, on_word: Callable[[str], None]) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if (match := _OURS.match(line)) is not None:
                self._said.append(match[1].strip())
                if (number := _NUMBER.search(line)) is not None:
                    self._number = next(filter(None, number.groups()))
            on_word(line.rstrip("\n"))

    def _look(self) -> None:
        """Find the job among the user's by the session that submitted it; finished ones are listed for minutes."""
        columns = "JobID:20,AllocSID:20,State:20,PreemptTime:20"
        listed = ask(["squeue", "--me", "--states=all", "--noheader", f"--Format={columns}"]) or ""
        rows = [words for line in listed.splitlines() if len(words := line.split()) == 4]
        mine = [row for row in rows if row[1] == str(self._process.pid)]
        if mine:
            self._number, _, self._state, preempted = max(mine, key=lambda row: int(row[0]))
            # Slurm does not call a job PREEMPTED that ends within its grace time.
            self._preempted = preempted[:1].isdigit()


def ask(command: Sequence[str]) -> str | None:
    """Return the output of a client of Slurm; None if it fails. An unknown job is no failure."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if not done.returncode or "Invalid job id" in done.stderr else None

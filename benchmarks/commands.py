"""Commands as benchmarks time them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def clock(command: list[str], folder: Path) -> float:
    """Return the wall time of a command in seconds. SystemExit with its output if it fails."""
    before = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    elapsed = time.perf_counter() - before
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return elapsed


def harness(arguments: list[str], folder: Path) -> tuple[float, list[dict[str, Any]], float]:
    """Return a run's wall time, its records, and the processor time of the harness without its trials, in seconds."""
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as evidence:
        command = [sys.executable, "-m", "harness", "run", *arguments, "--evidence", evidence, "--json", "-"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            records: list[dict[str, Any]] = json.loads(process.stdout.read())["records"]
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
    return time.perf_counter() - before, records, used.ru_utime + used.ru_stime


def trial_seconds(records: list[dict[str, Any]]) -> list[float]:
    """Return the seconds of all trials that ran: of the subjects, then of the mutants."""
    mutants = [mutant["seconds"] for record in records for mutant in record["mutants"] if mutant["seconds"]]
    return [*(record["trial_seconds"] for record in records), *mutants]

"""The fake driver and programs on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.tools.recorder.libraries import compiled, planted, recorder, recording
from harness.tools.recorder.records import Recording, read

__all__ = ["Fakes", "Ran"]

_HERE = Path(__file__).parent
_OPTIONS = ("-fvisibility=default", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic")
"""As the real driver is linked."""


@dataclass(frozen=True)
class Ran:
    """What a program did: its exit status and output, and what the recorder wrote."""

    status: int
    output: str
    seen: Recording
    folder: Path


class Fakes:
    """A driver without a GPU, the recorder, and a way to run the fake engine on them."""

    def __init__(self, folder: Path) -> None:
        """Compile both."""
        self.folder = folder
        self.driver = compiled(_HERE / "fake_driver.c", folder / "driver" / "libcuda.so.1", *_OPTIONS)
        (self.driver.parent / "libcuda.so").symlink_to(self.driver)
        self.cache = folder / "cache"
        self.recorder = recorder(self.cache)
        self.variables = {"LD_LIBRARY_PATH": str(self.driver.parent), "HARNESS_RECORDER_CUPTI": str(self.driver)}

    def run(self, name: str, arguments: Sequence[str] = (), defect: str = "", **variables: str) -> Ran:
        """Run the engine with the recorder, and with a defect at its boundary if one is named."""
        records = self.folder / name
        records.mkdir()
        environment = {**os.environ, **recording(self.recorder, records), **self.variables, **variables}
        if defect:
            environment |= planted(defect, self.driver, self.cache, str(self.driver.parent))
        command = [sys.executable, str(_HERE / "fake_engine.py"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return Ran(done.returncode, done.stdout + done.stderr, read(records), records)

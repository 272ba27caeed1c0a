"""Predicts which ptxas knows which target, and selects the ptxas that Triton runs."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness import Setting

_SINCE = {100: (12, 8), 101: (12, 8), 120: (12, 8), 103: (12, 9), 121: (12, 9), 110: (13, 0), 88: (13, 0)}
"""The first CUDA release with each target above 90; release notes of CUDA 12.8, 12.9 and 13.0."""
_SUFFIXES = {"a": (12, 0), "f": (12, 9)}
_WITHOUT_SUFFIX_A = 90


class NvidiaAssembler:
    """The rules of the release notes of CUDA. See `Assembler`."""

    def __init__(self, setting: Setting) -> None: ...

    def accepts(self, version: str, target: str) -> bool:
        release, named = re.search(r"release (\d+)\.(\d+)", version), re.fullmatch(r"sm_(\d+)([af]?)", target)
        if release is None or named is None:
            return False
        have, number, suffix = (int(release[1]), int(release[2])), int(named[1]), named[2]
        if (suffix and number < _WITHOUT_SUFFIX_A) or (suffix == "f" and number == _WITHOUT_SUFFIX_A):
            return False
        return have >= max(_SINCE.get(number, (0, 0)), _SUFFIXES.get(suffix, (0, 0)))

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        done = subprocess.run(
            [ptxas, f"--gpu-name={target}", ptx, "-o", image], capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stderr


class TritonVariables:
    """Since Triton 3.6, compute capabilities from 10.0 on have a separate ptxas and a separate variable."""

    def __init__(self, setting: Setting) -> None: ...

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        return {"TRITON_PTXAS_PATH": str(ptxas), "TRITON_PTXAS_BLACKWELL_PATH": str(ptxas)}

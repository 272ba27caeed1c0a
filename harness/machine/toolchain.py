"""Finds all ptxas binaries of this machine. Every check has a time limit.

for tool in ptxas():
    print(tool.path, tool.version, tool.details["targets"])
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.machine import timebox
from harness.machine.installed import SECONDS, Tool, folder_of

__all__ = ["Tool", "ptxas"]


def ptxas() -> tuple[Tool, ...]:
    """Return each ptxas in the order in which Triton looks, or one entry that states why there is none."""
    tools: dict[str, Tool] = {}
    for path, found_by in _ptxas_places():
        real = os.path.realpath(path)
        if real not in tools:
            tools[real] = _one_ptxas(path, found_by)
    if not tools:
        reason = "none under Triton, CUDA_HOME, CUDA_PATH or /usr/local/cuda, nor on PATH"
        return (Tool("ptxas", reason=reason),)
    return tuple(tools.values())


def _ptxas_places() -> Iterator[tuple[Path, str]]:
    """Yield the places of ptxas in Triton's order: named by a variable, bundled with Triton, then the toolkit's."""
    for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        if named := os.environ.get(variable):
            yield Path(named), variable
    if triton := folder_of("triton"):
        for path in sorted((triton / "backends" / "nvidia" / "bin").glob("ptxas*")):
            yield path, "Triton"
    toolkits = [(os.environ.get(variable), variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    for toolkit, found_by in (*toolkits, ("/usr/local/cuda", "/usr/local/cuda")):
        if toolkit and (path := Path(toolkit, "bin", "ptxas")).is_file():
            yield path, found_by
    if on_path := shutil.which("ptxas"):
        yield Path(on_path), "PATH"


def _one_ptxas(path: Path, found_by: str) -> Tool:
    answer = timebox.run([str(path), "--version"], SECONDS)
    if answer.value is None:
        return Tool("ptxas", path=str(path), details={"found_by": found_by, "targets": []}, reason=answer.reason)
    version = re.search(r"\bV(\d+(?:\.\d+)+)", answer.value)
    helped = timebox.run([str(path), "--help"], SECONDS)
    # The help lists 'sm_90a' and the like, in quotes, as the allowed values of --gpu-name.
    targets = sorted(
        set(re.findall(r"'(sm_\d+[a-z]?)'", helped.value or "")),
        key=lambda target: (int(re.sub(r"\D", "", target)), target),
    )
    reason = helped.reason or (None if targets else "its help names no sm_ target")
    details = {"found_by": found_by, "targets": targets}
    return Tool("ptxas", version[1] if version else None, str(path), details, reason)

"""All tools around a GPU. None is loaded into this process. Every check has a time limit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import final

from harness.base.shortening import described
from harness.machine import timebox
from harness.machine.installed import SECONDS, Tool, of_python, torch, vulkan
from harness.machine.toolchain import ptxas

__all__ = ["Toolchain", "survey"]


@final
@dataclass(frozen=True)
class Toolchain:
    """All tools. Each tuple has at least one entry. If no tool was found, the entry states why."""

    torch: Tool
    triton: Tool
    ptxas: tuple[Tool, ...]
    vulkan: tuple[Tool, ...]
    slurm: Tool
    """details: "partitions", each a line of sinfo."""


def survey() -> Toolchain:
    """Find all tools, side by side."""
    asking = {"ptxas": ptxas, "vulkan": vulkan, "slurm": _slurm}
    with ThreadPoolExecutor(max_workers=len(asking), thread_name_prefix="harness-survey") as pool:
        assemblers, adapters, slurm = pool.map(_never_fails, asking, asking.values())
    return Toolchain(torch(), of_python("triton", "__init__.py")[0], assemblers, adapters, slurm[0])


def _never_fails(name: str, ask: Callable[[], tuple[Tool, ...]]) -> tuple[Tool, ...]:
    try:
        return ask()
    except Exception as error:  # a tool may print an unknown format
        return (Tool(name, reason=f"its answer was not understood: {described(error)}"),)


def _slurm() -> tuple[Tool, ...]:
    path = shutil.which("sinfo")
    if path is None:
        return (Tool("slurm", reason="sinfo is not on PATH"),)
    version = timebox.run([path, "--version"], SECONDS)
    listed = timebox.run([path, "--noheader", "--format=%P %a, %D nodes, gres %G"], SECONDS)
    number = version.value.split()[-1] if version.value and version.value.split() else None
    partitions = [line.strip() for line in (listed.value or "").splitlines() if line.strip()]
    return (Tool("slurm", number, path, {"partitions": partitions}, version.reason or listed.reason),)

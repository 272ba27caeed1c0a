"""Finds torch and Vulkan, without loading them into this process.

    for tool in vulkan():
        print(tool.details["adapter"], tool.reason)

Every check has a time limit. Every missing tool has a reason.
"""

from __future__ import annotations

import ctypes.util
import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

from harness.base import regular_file, strictjson
from harness.base.strictjson import JsonObject
from harness.machine import timebox

__all__ = ["SECONDS", "Tool", "folder_of", "of_python", "torch", "vulkan", "vulkan_gpu"]

SECONDS = 10.0
"""Time limit of one command."""

_WGPU = """
import json, wgpu
adapters = wgpu.gpu.enumerate_adapters_sync()
print(json.dumps([{str(key): str(value) for key, value in dict(one.info).items()} for one in adapters]))
"""


@final
@dataclass(frozen=True)
class Tool:
    """One tool: version, path and capabilities, or why it is missing."""

    name: str
    version: str | None = None
    path: str | None = None
    details: JsonObject = field(default_factory=dict)
    reason: str | None = None
    """Why the tool, or its version, is missing."""


def folder_of(package: str) -> Path | None:
    """Return the folder of a package of this Python; None if it is not installed. Nothing is imported."""
    # find_spec of a name without dots runs none of the package's code.
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _assigned(source: str, name: str) -> str | None:
    """Return the string literal that a Python source assigns to a name; None if there is none."""
    match = re.search(rf"^{name}\s*(?::[^=\n]*)?=\s*['\"]([^'\"]*)['\"]", source, re.MULTILINE)
    return match[1] if match else None


def of_python(package: str, file: str) -> tuple[Tool, str]:
    """Return a package of this Python, and the text of its file that assigns `__version__`. Nothing is imported."""
    folder = folder_of(package)
    if folder is None:
        return Tool(package, reason="not installed for this Python"), ""
    try:
        source = regular_file.read(folder / file).decode("utf-8", "replace")
    except OSError:
        source = ""
    version = _assigned(source, "__version__")
    return Tool(package, version, str(folder), reason=None if version else f"no version in {folder / file}"), source


def torch() -> Tool:
    """Return the torch of this Python, read from its files. details: "cuda", the CUDA it was built for, and "hip"."""
    tool, source = of_python("torch", "version.py")
    if tool.path is None:
        return tool
    cuda = _assigned(source, "cuda")
    if cuda is None and not re.search(r"^cuda\s*(?::[^=\n]*)?=\s*None\b", source, re.MULTILINE):
        cuda = "of an unknown version"  # a build from source may write another file
    return replace(tool, details={"cuda": cuda, "hip": _assigned(source, "hip")})


_WGPU_DETAILS = {"adapter": "device", "driver": "description", "type": "adapter_type"}


def vulkan() -> tuple[Tool, ...]:
    """Return the Vulkan adapters that wgpu lists, or one entry that states why there is none."""
    if folder_of("wgpu") is None:
        return (Tool("vulkan", reason="the package wgpu is not installed"),)
    answer = timebox.run([sys.executable, "-c", _WGPU], SECONDS)
    if answer.value is None:
        return (Tool("vulkan", reason=f"wgpu: {answer.reason}"),)
    adapters = tuple(
        Tool("vulkan", path="wgpu", details={name: info.get(key) for name, key in _WGPU_DETAILS.items()})
        for info in strictjson.loads(answer.value)
        if info.get("backend_type") == "Vulkan"
    )
    return adapters or (Tool("vulkan", reason=f"wgpu lists no Vulkan adapter; {_vulkan_remedy()}"),)


def vulkan_gpu() -> str | None:
    """Return the uuid of Vulkan's first GPU in NVML's form; None if vulkaninfo does not report it."""
    answer = timebox.run(["vulkaninfo", "--summary"], SECONDS) if shutil.which("vulkaninfo") else None
    for block in re.split(r"^GPU\d+:\s*$", (answer and answer.value) or "", flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(\w+)\s*=\s*(.+?)\s*$", block, re.MULTILINE))
        if "deviceUUID" in values and values.get("deviceType") != "PHYSICAL_DEVICE_TYPE_CPU":
            return f"GPU-{values['deviceUUID']}"
    return None


def _vulkan_remedy() -> str:
    """Return what is missing, with the names of Debian's and Ubuntu's packages."""
    if ctypes.util.find_library("vulkan") is None:
        return "there is no Vulkan loader (libvulkan1)"
    return "the loader finds no driver: that of the GPU (libnvidia-gl), or Mesa's in software (mesa-vulkan-drivers)"

"""One kernel: its text, the constants compiled into it, and the key that names exactly that."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

__all__ = ["OPTIONS", "KernelSpec"]

OPTIONS: Final = ("--std=c++17",)
"""What every kernel is compiled with, besides its architecture and its constants."""

_FOLDER: Final = Path(__file__).parent

# How a constant is called in a key. Kernels take EPS as a float and THETA as a double, and keys hold their bits.
_LABELS: Final = {
    "SIZE_M": "m",
    "SIZE_N": "n",
    "SIZE_K": "k",
    "TRANSPOSE_A": "ta",
    "TRANSPOSE_B": "tb",
    "BIAS": "bias",
    "TILE": "tile",
    "HIDDEN": "h",
    "EPS": "eps",
    "HEAD_DIM": "d",
    "THETA": "theta",
    "DIRECTION": "dir",
    "SEQUENCE": "s",
}


@dataclass(frozen=True)
class KernelSpec:
    """What is compiled, short of the architecture.

    Attributes:
        name: what the kernel is for, such as `gate_backward_x`.
        source: the file it is written in, without `.cu`.
        constants: names and values of the macros its text leaves open; an integer of 0 leaves a size to the launch.
    """

    name: str
    source: str
    constants: tuple[tuple[str, int | float], ...] = ()

    @property
    def key(self) -> str:
        """The kernel's name in caches, in archives, and in its own machine code.

        Every constant is in it. aprender's cache had one constant key for all kernels (PMAT-698j), and one without the
        eps (PMAT-698k): the wrong kernel was found, or none, and a kernel was compiled in the middle of a step.
        """
        return self.name + "".join(_suffix(name, value) for name, value in self.constants)

    @property
    def text(self) -> str:
        """The CUDA C of the file, what it includes of ours put in its place: compilers need no path."""
        return _text(self.source)

    @property
    def macros(self) -> dict[str, str]:
        """The constants as C literals, and KERNEL, the key, under which the kernel stands in its machine code."""
        return {"KERNEL": self.key} | {name: _literal(name, value) for name, value in self.constants}

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the machine code follows from, short of compiler and architecture."""
        content = json.dumps({"text": self.text, "macros": self.macros, "options": OPTIONS}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def _suffix(name: str, value: int | float) -> str:
    if isinstance(value, float):
        return f"_{_LABELS[name]}{struct.pack('>f' if name == 'EPS' else '>d', value).hex()}"
    if name == "DIRECTION":
        return "_back" if value < 0 else ""
    return f"_{_LABELS[name]}{value}" if value else ""


def _literal(name: str, value: int | float) -> str:
    """A C literal of exactly the value that the kernel takes; hexadecimal for floats, where decimals might round."""
    if isinstance(value, float):
        (single,) = struct.unpack(">f", struct.pack(">f", value))
        return single.hex() + "f" if name == "EPS" else value.hex()
    return f"({value})"


@lru_cache
def _text(source: str) -> str:
    text = (_FOLDER / f"{source}.cu").read_text(encoding="utf-8")
    return re.sub(r'#include "(\w+\.cuh)"\n', lambda found: (_FOLDER / found[1]).read_text(encoding="utf-8"), text)

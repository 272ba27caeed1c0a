"""One kernel: its text, the constants compiled into it, and the key that identifies both."""

import hashlib
import json
import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

OPTIONS: Final = ("--std=c++17",)
"""Compiler options of every kernel, besides its architecture and constants."""

_FOLDER: Final = Path(__file__).parent

# The label of each constant in a key. EPS is a float and THETA a double; keys hold their bits.
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
    """The input of a compilation without the architecture.

    Attributes:
        name: the purpose of the kernel, such as `gate_backward_x`.
        source: its file, without `.cu`.
        constants: names and values of the macros in its text; an integer of 0 makes a size an argument of the launch.
    """

    name: str
    source: str
    constants: tuple[tuple[str, int | float], ...] = ()

    @property
    def key(self) -> str:
        """The kernel's name in caches, in archives and in its machine code.

        It includes every constant. aprender's cache had one key for all kernels (PMAT-698j), and one without eps
        (PMAT-698k): it found a wrong kernel, or none, so a kernel was compiled in the middle of a step.
        """
        return self.name + "".join(_suffix(name, value) for name, value in self.constants)

    @property
    def text(self) -> str:
        """The CUDA C text, with our includes inserted, so that compilers need no search path."""
        return _text(self.source)

    @property
    def macros(self) -> dict[str, str]:
        """The constants as C literals, and KERNEL, the key, which is the kernel's name in its machine code."""
        return {"KERNEL": self.key} | {name: _literal(name, value) for name, value in self.constants}

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the machine code, except compiler and architecture."""
        content = json.dumps({"text": self.text, "macros": self.macros, "options": OPTIONS}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def _suffix(name: str, value: int | float) -> str:
    if isinstance(value, float):
        return f"_{_LABELS[name]}{struct.pack('>f' if name == 'EPS' else '>d', value).hex()}"
    if name == "DIRECTION":
        return "_back" if value < 0 else ""
    return f"_{_LABELS[name]}{value}" if value else ""


def _literal(name: str, value: int | float) -> str:
    """A C literal with exactly the kernel's value; hexadecimal for floats, because decimals may round."""
    if isinstance(value, float):
        (single,) = struct.unpack(">f", struct.pack(">f", value))
        return single.hex() + "f" if name == "EPS" else value.hex()
    return f"({value})"


@lru_cache
def _text(source: str) -> str:
    text = (_FOLDER / f"{source}.cu").read_text(encoding="utf-8")
    return re.sub(r'#include "(\w+\.cuh)"\n', lambda match: (_FOLDER / match[1]).read_text(encoding="utf-8"), text)

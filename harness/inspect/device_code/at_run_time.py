"""Signs that a program makes device code when it runs: pieces of PTX, and the names of compilers that it could call.

They prove nothing: text may never be used, and a name never called. But where they are, the code in a file need not be
all the code that the file's program runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["signs"]

_PIECES_TOLD: Final = 3
_COMPILERS: Final = re.compile(
    rb"nvrtcCompileProgram|libnvrtc\.so|nvPTXCompilerCompile|nvvmCompileProgram|libnvvm\.so|libnvJitLink\.so"
)
"""NVIDIA's compilers that a program can carry or load: NVRTC, the PTX compiler, NVVM, and the linker that compiles."""


def signs(view: memoryview, pieces: Sequence[int]) -> Iterator[str]:
    """The signs in a file, in words; `pieces` are the offsets of directives of PTX that belong to no module."""
    if pieces:
        places = ", ".join(map(str, pieces[:_PIECES_TOLD])) + (", …" if len(pieces) > _PIECES_TOLD else "")
        yield (
            f"PTX in pieces that are no module, at byte {places}: a program with such text may write PTX when it runs, "
            "which only the driver's cache or the process itself can show"
        )
    found = dict.fromkeys(name[0].decode() for name in _COMPILERS.finditer(view))
    if found:
        yield f"the names {', '.join(found)}: a program that calls such a compiler makes code when it runs"

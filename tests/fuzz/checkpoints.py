"""The shared parts of the fuzz targets of checkpoint formats: the arrays in healthy files, and the property."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from harness.tools.inspect.checkpoint import Inspection, Refused, dtypes, inspect
from tests.fuzz.limits import bounded

__all__ = ["ARRAYS", "OTHERS", "examine"]

ARRAYS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(5, dtype=np.float16),
    "c": np.arange(32, dtype=np.int8),
}
OTHERS = {"one": np.ones(256, np.float32), "none": np.zeros((0, 4), np.float32)}

dtypes.ggml(12)  # imports the decoders, for which no file should pay


def examine(data: bytes) -> None:
    """Inspect these bytes. A refusal names a place in the file, and no tensor has more bytes than the file."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.write(data)
        file.flush()
        seen = attempt(Path(file.name))
    if isinstance(seen, Refused):
        assert seen.path == Path(file.name)
        assert seen.offset is None or 0 <= seen.offset <= len(data)
    else:
        assert all(0 <= tensor.size <= len(data) for tensor in seen.tensors.values())


def attempt(path: Path) -> Inspection | Refused:
    """The inspector's result, or its documented error."""
    try:
        with bounded():
            return inspect(path)
    except Refused as refused:
        return refused

"""How much slower than the reference a GPU is, by the roofs that `harness roofline` kept. Imports no torch.

The time limits of contracts are those of the reference, an H200. A plan multiplies them by the pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from harness.base import strictjson
from harness.machine.cache_folder import NoCacheFolderError, cache_folder

__all__ = ["MOST", "REFERENCE", "pace"]

REFERENCE: Final[Mapping[str, float]] = {"memory": 4.622e12, "product bfloat16": 7.927e14}
"""Bytes and operations a second, as F-GB10-BOUND-001 measured them on an H200 in its full profile."""
MOST: Final = 64.0
"""The largest pace. A result beyond it was measured while the GPU did something else."""
_MEMORY: Final = ("copy", "read", "write")


def pace(gpu: str) -> float:
    """Return how many times slower than the reference a GPU is: from 1 to MOST, and 1 without kept roofs.

    The slower of memory and products counts, of the roofs that were measured last.

    Args:
        gpu: the name of the device, as the driver says it.
    """
    measured = max(_kept(gpu), key=lambda measurement: measurement[0], default=None)
    if measured is None:
        return 1.0
    roofs = measured[1]
    slower = [REFERENCE[name] / rate for name, rate in roofs.items() if rate > 0.0]
    return round(min(max([1.0, *slower]), MOST), 2)


def _kept(gpu: str) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the time of each kept result of such a GPU, and its rates by the names of REFERENCE."""
    with suppress(NoCacheFolderError, OSError):
        for file in sorted((cache_folder() / "roofs").glob("cuda-*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # another version wrote it
                document: Any = strictjson.load(file)
                if document["device"]["name"] == gpu:
                    peaks = {name: float(roof["peak"]) for name, roof in document["roofs"].items()}
                    memory = max(peaks[name] for name in _MEMORY)
                    yield file.stat().st_mtime, {"memory": memory, "product bfloat16": peaks["product bfloat16"]}

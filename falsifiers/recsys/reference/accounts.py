"""The formulas of examples/commons/utils/perf.py: attention operations, their sum over ranks, and utilisation."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from harness import Setting

_PEAKS = {"GB200": 2500.0, "B200": 2250.0, "H100": 989.0, "H200": 989.0, "A100": 312.0}
"""TFLOP/s by a substring of the GPU's name. If a name contains several, the longest one decides."""


class Accounting:
    """The formulas of the source."""

    def __init__(self, setting: Setting) -> None: ...

    def attention(
        self, heads: int, width: int, counts: Sequence[Mapping[str, int]], *, causal: bool, backward: bool
    ) -> float:
        """Count two products for each pair of row and key; of the history with itself, half of the square."""
        pairs = 0.0
        for count in counts:
            seen = count["length"] - count["targets"]
            history = seen - count["contextuals"]
            pairs += count["length"] * seen - (history * history / 2.0 if causal else 0.0) + count["targets"]
        return 4.0 * heads * width * pairs * (3.5 if backward else 1.0)

    def summed(self, operations: float, tensor_parallel: int) -> float:
        """Reduce over a group with one rank per batch. Every rank creates every group."""
        ranks = range(dist.get_world_size())
        groups = [dist.new_group(ranks[first::tensor_parallel]) for first in range(tensor_parallel)]
        total = torch.tensor(operations, dtype=torch.float64)
        dist.all_reduce(total, group=groups[dist.get_rank() % tensor_parallel])
        return float(total)

    def peak(self, name: str) -> float:
        known = [part for part in _PEAKS if part in name.upper()]
        if not known:
            raise ValueError(f"the peak of {name!r} is not known; known are {', '.join(_PEAKS)}")
        return _PEAKS[max(known, key=len)]

    def utilisation(self, operations: float, seconds: float, name: str, ranks: int) -> float:
        return operations / seconds / 1e12 / (self.peak(name) * ranks) * 100.0

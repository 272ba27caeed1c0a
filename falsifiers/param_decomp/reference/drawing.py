"""The random draws of a step: sources and routes.

Each row of the global batch has its own streams. So a draw depends neither on the number of ranks nor on the number of
draws: a layer that the backward pass recomputes draws the same numbers.
"""

import torch
from torch import Tensor

_LARGEST_SEED = 2**63


class Stream:
    """The random numbers of one forward of one step, drawn on the CPU, so that all devices have the same."""

    def __init__(self, seed: int, step: int, forward: int, rows: range, device: torch.device) -> None:
        """Args: rows: this rank's rows of the global batch."""
        self.key = (seed, step, forward)
        self.rows = rows
        self.device = device
        self.where = torch.device("meta" if device.type == "meta" else "cpu")

    def generator(self, row: int, purpose: int) -> torch.Generator | None:
        """The generator of a row for one purpose: a site's index, or -1 for the route. None without data."""
        if self.where.type == "meta":
            return None
        return torch.Generator().manual_seed(hash((*self.key, row, purpose)) % _LARGEST_SEED)

    def source(self, place: int, sequence: int, channels: int, dtype: torch.dtype) -> Tensor:
        """Uniform numbers [rows, sequence, channels] for the site at this index."""
        drawn = [
            torch.rand(sequence, channels, generator=self.generator(row, place), device=self.where, dtype=dtype)
            for row in self.rows
        ]
        return torch.stack(drawn).to(self.device)

    def uniform_k(self, sites: int, sequence: int) -> Tensor:
        """For each position, k random sites, with k uniform in 1 to `sites`: bool [sites, rows, sequence]."""
        drawn = []
        for row in self.rows:
            generator = self.generator(row, -1)
            k = torch.randint(1, sites + 1, (1, sequence), generator=generator, device=self.where)
            order = torch.rand(sites, sequence, generator=generator, device=self.where).argsort(dim=0)
            drawn.append(order.argsort(dim=0) < k)
        return torch.stack(drawn, dim=1).to(self.device)


def chunks(sites: list[str], size: int) -> list[list[str]]:
    """The sites in order, in chunks of `size`; the last may be shorter."""
    return [sites[start : start + size] for start in range(0, len(sites), size)]

"""Compiles a function with `.item()` in a process whose environment sets scalar capture."""

import json
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters


def counted() -> dict[str, Any]:
    """Return the reasons for graph breaks, and the number of graphs, as torch counts them."""
    counters.clear()
    torch.compile(_mean_of_positive, backend="eager")(torch.arange(-4.0, 5.0))
    return {"breaks": dict(counters["graph_break"]), "graphs": int(counters["stats"]["unique_graphs"])}


def _mean_of_positive(values: Tensor) -> Tensor:
    return values.clamp(min=0.0).sum() / (values > 0).sum().item()


if __name__ == "__main__":
    print(json.dumps(counted()))

"""The workloads of a profile: the parameters that differ between them."""

from collections.abc import Mapping
from typing import Any

_CHANGED = ("batch", "sequence", "components", "vocabulary", "remat")


def workloads(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A map for each index of the existing lists `workload_batch`, `workload_sequence` and so on.

    The parameter `workloads` selects indices, so that a mutant need not run all of them.
    """
    lists = {name: parameters[f"workload_{name}"] for name in _CHANGED if f"workload_{name}" in parameters}
    maps = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return [maps[place] for place in parameters.get("workloads", range(len(maps)))]

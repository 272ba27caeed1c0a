"""The workloads of a profile: what changes from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CHANGED = ("batch", "sequence", "components", "vocabulary", "remat")


def workloads(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A map for each place of the lists `workload_batch`, `workload_sequence` and so on; those that exist.

    The parameter `workloads` chooses places, so that a mutant need not work through all of them.
    """
    lists = {name: parameters[f"workload_{name}"] for name in _CHANGED if f"workload_{name}" in parameters}
    found = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return [found[place] for place in parameters.get("workloads", range(len(found)))]

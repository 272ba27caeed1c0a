"""How torchrec finds the size of a node's group of ranks, and a rank's group.

This is what torchrec/distributed/comm.py does at 376cac6a. It asks no device: without a variable it takes 8.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
_DEFAULT = 8


def local_size(variables: Mapping[str, str], world_size: int) -> int:
    """Return the ranks of a node: the first variable with a number that is not negative, if it divides the world.

    Raises:
        ValueError: a variable is no integer; torchrec fails on it, too.
        ZeroDivisionError: a variable is 0; likewise.
    """
    size = next((number for name in _NAMES if (number := int(variables.get(name, -1))) >= 0), _DEFAULT)
    return size if world_size % size == 0 else world_size


def group_rank(variables: Mapping[str, str], rank: int, world_size: int) -> int:
    """Return which group of neighbours a rank belongs to; with ranks in order of nodes, its node."""
    return rank // local_size(variables, world_size)

"""How torchrec determines the size of a node's group of ranks, and the group of a rank.

As in torchrec/distributed/comm.py at 376cac6a. It asks no device: without a variable it assumes 8.
"""

from collections.abc import Mapping

_NAMES = ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
_DEFAULT = 8


def local_size(variables: Mapping[str, str], world_size: int) -> int:
    """Return the ranks of a node: the first variable that is a number and not negative, if it divides the world size.

    Raises:
        ValueError: a variable is no integer; torchrec fails too.
        ZeroDivisionError: a variable is 0; torchrec fails too.
    """
    size = next((number for name in _NAMES if (number := int(variables.get(name, -1))) >= 0), _DEFAULT)
    return size if world_size % size == 0 else world_size


def group_rank(variables: Mapping[str, str], rank: int, world_size: int) -> int:
    """Return the group of neighbours to which a rank belongs; if ranks are ordered by node, its node."""
    return rank // local_size(variables, world_size)

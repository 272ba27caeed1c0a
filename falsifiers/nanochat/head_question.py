"""What the exactness of a head's loss is asked with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from falsifiers.nanochat.subject import Question

__all__ = ["HeadQuestion"]


@dataclass(frozen=True)
class HeadQuestion(Question):
    """Inputs of one call. At most one of them is frozen.

    Attributes:
        frozen: the input that is not trained. The answer's gradient of it is 0.
    """

    frozen: Literal["", "hidden", "weight"] = ""

"""The inputs of a call that measures the exactness of a head's loss."""

from dataclasses import dataclass
from typing import Literal

from falsifiers.nanochat.subject import Question


@dataclass(frozen=True)
class HeadQuestion(Question):
    """The inputs of one call. At most one of them is frozen.

    Attributes:
        frozen: the input that requires no gradient. Its gradient in the answer is 0.
    """

    frozen: Literal["", "hidden", "weight"] = ""

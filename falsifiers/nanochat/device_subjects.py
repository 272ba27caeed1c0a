"""What the claims about tools and devices need from a subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

__all__ = [
    "Assembler", "Candidate", "CodeChoice", "PtxasChoice", "Quantiser", "Run", "SmallGpuPatch", "TokenStream", "Tuner",
    "Utilisation",
]  # fmt: skip


class Assembler(Protocol):
    """What knows which ptxas takes which target, and runs it; built as `Subject(setting)`."""

    def accepts(self, version: str, target: str) -> bool:
        """Return whether a ptxas that prints this text for `--version` knows a target, such as "sm_121a"."""
        ...

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        """Make machine code for a target, and return the exit status and what was written to standard error."""
        ...


class PtxasChoice(Protocol):
    """What makes Triton run one ptxas; built as `Subject(setting)`."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Return the environment variables with which Triton compiles by this program, for every target."""
        ...


class CodeChoice(Protocol):
    """What knows how a GPU runs code that was built for others; built as `Subject(setting)`."""

    def how(self, architectures: Sequence[str], capability: str) -> Literal["machine code", "PTX", "not at all"]:
        """Return how a GPU of a compute capability such as "12.1" runs code.

        Args:
            architectures: what it was built for, as torch lists it: "sm_120" is machine code, "compute_120" is PTX.
        """
        ...


class SmallGpuPatch(Protocol):
    """What lets Inductor tune on a GPU with few multiprocessors; built as `Subject(setting)`."""

    def applied(self) -> AbstractContextManager[object]:
        """Return a context in which it does."""
        ...


Candidate = Mapping[str, int]
"""A configuration of a kernel: `rows`, `columns` and `depth` of its blocks, and `stages` in flight."""
Run = Callable[[Candidate], tuple[float, Tensor]]
"""Runs a kernel with a configuration: seconds and result. Raises Triton's OutOfResources if it does not fit."""


class Tuner(Protocol):
    """What finds the fastest configuration whose result is right; built as `Subject(setting)`."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Callable[[Tensor], bool]) -> Candidate | None:
        """Return the candidate; None if no one gives a right result."""
        ...


class Utilisation(Protocol):
    """What a trainer computes of its speed; built as `Subject(setting)`."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """Return the share of the device's peak that steps reached, or None if the peak cannot be right.

        Args:
            operations: of floating point, in all steps together.
            seconds: that the steps took.
            dtype: of the products, such as "bfloat16".
            device: its name, as the driver tells it.
            peaks: measured rates of products in operations a second, by dtype.
        """
        ...


class Quantiser(Protocol):
    """Emulated NVFP4: four bits a number, and a scale for each block; built as `Subject(setting)`."""

    def quantised(self, values: Tensor) -> Tensor:
        """Return the numbers that NVFP4 keeps of float32 values [rows, columns], in float32, blocks along the rows."""
        ...

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """Return inputs [rows, width] @ weight[out, width].T with gradients, as a training step of the recipe has it.

        The product and the gradient of the inputs have quantised factors; the gradient of the weight has not.
        """
        ...


class TokenStream(Protocol):
    """A byte-pair tokenizer of texts; built as `Subject(setting)`."""

    def train(self, texts: Sequence[str], vocabulary: int) -> str:
        """Learn up to `vocabulary` tokens, and return vocabulary and merges in the format of tokenizer.json."""
        ...

    def encode(self, texts: Sequence[str], threads: int, batch: int) -> Sequence[int]:
        """Return the tokens of all texts, one after the other.

        Args:
            threads: how many of them work side by side.
            batch: texts that a thread takes at a time.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        ...

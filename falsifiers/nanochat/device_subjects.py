"""What the claims about tools and devices need from a subject."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor


class Assembler(Protocol):
    """Predicts which ptxas knows which target, and runs one; built as `Subject(setting)`."""

    def accepts(self, version: str, target: str) -> bool:
        """Return whether a ptxas that prints this text for `--version` knows a target, such as "sm_121a"."""
        ...

    def assemble(self, ptxas: Path, ptx: Path, target: str, image: Path) -> tuple[int, str]:
        """Make machine code for a target, and return the exit status and what was written to standard error."""
        ...


class PtxasChoice(Protocol):
    """Makes Triton run a given ptxas; built as `Subject(setting)`."""

    def variables(self, ptxas: Path) -> Mapping[str, str]:
        """Return the environment variables that make Triton use this program for every target."""
        ...


class CodeChoice(Protocol):
    """Predicts how a GPU runs code that was built for others; built as `Subject(setting)`."""

    def how(self, architectures: Sequence[str], capability: str) -> Literal["machine code", "PTX", "not at all"]:
        """Return how a GPU of a compute capability such as "12.1" runs code.

        Args:
            architectures: what it was built for, as torch lists it: "sm_120" is machine code, "compute_120" is PTX.
        """
        ...


class SmallGpuPatch(Protocol):
    """Lets Inductor tune on a GPU with few multiprocessors; built as `Subject(setting)`."""

    def applied(self) -> AbstractContextManager[object]:
        """Return a context in which Inductor tunes."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the variables that make a process tune its compiled products. They are set before it imports torch."""
        ...


Candidate = Mapping[str, int]
"""A kernel configuration: `rows`, `columns` and `depth` of its blocks, and pipeline `stages`."""
Run = Callable[[Candidate], tuple[float, Tensor]]
"""Runs a kernel with a configuration: seconds and result. Raises Triton's OutOfResources if it does not fit."""


class Tuner(Protocol):
    """Finds the fastest configuration with a right result; built as `Subject(setting)`."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Callable[[Tensor], bool]) -> Candidate | None:
        """Return the configuration; None if none gives a right result."""
        ...


class Utilisation(Protocol):
    """A trainer's speed figures; built as `Subject(setting)`."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """Return the share of the device's peak that steps reached, or None if the peak cannot be right.

        Args:
            operations: floating-point operations of all steps together.
            seconds: the duration of the steps.
            dtype: of the products, such as "bfloat16".
            device: its name by the driver.
            peaks: measured rates of products in operations per second, by dtype.
        """
        ...


class Quantiser(Protocol):
    """Emulated NVFP4: four bits per number, and a scale per block; built as `Subject(setting)`."""

    def quantised(self, values: Tensor) -> Tensor:
        """Return float32 values [rows, columns] rounded to NVFP4, in float32, with blocks along the rows."""
        ...

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """Return inputs [rows, width] @ weight[out, width].T with gradients, as in a training step of the recipe.

        The factors of the product and of the inputs' gradient are quantised; those of the weight's gradient are not.
        """
        ...


class TokenStream(Protocol):
    """A byte-pair tokenizer of texts; built as `Subject(setting)`."""

    def train(self, texts: Sequence[str], vocabulary: int) -> str:
        """Learn up to `vocabulary` tokens, and return vocabulary and merges in the format of tokenizer.json."""
        ...

    def encode(self, texts: Sequence[str], threads: int, batch: int) -> Sequence[int]:
        """Return the tokens of all texts, concatenated.

        Args:
            threads: how many threads work in parallel.
            batch: texts that a thread takes at a time.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        ...

"""Draws the arguments of a function from a case: sizes, choices, dtype, kind of values and a seed.

    def example(draw):
        rows, width = draw.size("rows"), draw.size("width", multiple_of=8)
        return draw.tensor(rows, width), draw.tensor(width), draw.choice("eps", 1e-5, 1e-2)

The same function draws all cases. The adversary varies the case: one size, one choice or one element at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["VALUES", "Arguments", "Case", "Draw", "Drawn", "drawn"]

BASE: Final = (5, 13, 3, 7, 11, 2)
"""Default sizes of the first, second, … named dimension. None is 1, and none divides another."""
_ZEROS: Final = 0.2
"""The share of zeros in an upstream gradient, and the share of rows that are all zero."""
VALUES: Final = ("normal", "large", "alike", "ties", "equal", "zero", "denormal", "huge", "spike", "inf", "-inf", "nan")
"""The kinds of values of floating tensors."""


@dataclass(frozen=True)
class Case:
    """A reproducible set of arguments. Tensors are numbered in the order of drawing.

    Attributes:
        dtype: the dtype of floating-point tensors, such as `bfloat16`.
        sizes: sizes that differ from the defaults, by name.
        choices: indices of choices that differ from the first one, by name.
        values: one of `VALUES`.
        seed: the seed of all contents.
        changed_element: the number of a tensor and the flat index of the one element to change; empty for none.
        special: the number of the tensor that contains the infinity or NaN.
        out_of_range: the number of an index tensor with one element outside its range; -1 for none.
        below: whether that element is too small rather than too large.
        refused: the position of the refused argument to pass, among those that the example declares; -1 for none.
        equal_rows: the number of a tensor that is constant along its first dimension; -1 for none.
    """

    dtype: str = "float32"
    sizes: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, int] = field(default_factory=dict)
    values: str = "normal"
    seed: int = 0
    changed_element: tuple[int, ...] = ()
    special: int = 0
    out_of_range: int = -1
    below: bool = False
    refused: int = -1
    equal_rows: int = -1

    def with_size(self, name: str, size: int) -> Case:
        """Return the case with another size."""
        return replace(self, sizes={**self.sizes, name: size})

    def with_choice(self, name: str, index: int) -> Case:
        """Return the case with another choice, by its index."""
        return replace(self, choices={**self.choices, name: index})

    def text(self) -> str:
        """Describe how the case differs from the first one."""
        named = [f"{name}={size}" for name, size in self.sizes.items()]
        named += [f"{name}#{index}" for name, index in self.choices.items()]
        named += [] if self.values == "normal" else [f"values {self.values}"]
        return " ".join([self.dtype, *named, f"seed {self.seed}"])


Arguments = Any
"""Result of an example function: a tuple of positional arguments, a dict of keyword arguments, or a pair of both."""


@dataclass(frozen=True)
class Drawn:
    """Drawn arguments, with the sizes, choices and tensor numbers behind them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, int | None, int]]
    """Minimum, maximum (None for no limit) and step of each size, by name."""
    chosen_sizes: Mapping[str, int]
    """The sizes of this case, by name."""
    choices: Mapping[str, tuple[Any, ...]]
    numbers: Mapping[int, int]
    """The number of each drawn tensor, by its `id`."""
    indices: frozenset[int]
    """The numbers of the index tensors."""
    refused: tuple[str, ...]
    """Descriptions of the arguments that the example declares as refused."""


class Draw:
    """Draws the sizes, choices and tensors of one case."""

    def __init__(self, case: Case, *, device: str = "cpu", dry: bool = False) -> None:
        """Args:
        dry: draw meta tensors, to count elements only.
        """
        self._case, self._device, self._dry = case, device, dry
        self._generator = torch.Generator().manual_seed(case.seed * 7919 + 1)
        self._tensors = 0
        self._kept: list[Tensor] = []
        self.sizes: dict[str, tuple[int, int | None, int]] = {}
        self.chosen_sizes: dict[str, int] = {}
        self.choices: dict[str, tuple[Any, ...]] = {}
        self.numbers: dict[int, int] = {}
        self.indices: set[int] = set()
        self.refused: list[str] = []
        self.elements = 0

    def size(
        self, name: str, *, least: int = 1, most: int | None = None, multiple_of: int = 1, usual: int | None = None
    ) -> int:
        """Draw a named size, from `least` to `most`. Dimensions with different names can have different sizes.

        Args:
            usual: the size in the first case.
        """
        if name not in self.sizes:
            self.sizes[name] = (least, most, multiple_of)
        position = list(self.sizes).index(name)
        size = self._case.sizes.get(name, usual if usual is not None else BASE[position % len(BASE)] * multiple_of)
        size = size if name in self._case.sizes and size == 0 else max(least, size)
        size = -(-size // multiple_of) * multiple_of
        self.chosen_sizes[name] = size if most is None else min(most, size)
        return self.chosen_sizes[name]

    def choice(self, name: str, *values: Any, refused: tuple[Any, ...] = ()) -> Any:
        """Choose one of the values of a scalar, flag or string argument. The first case has the first value.

        Args:
            refused: values for which the function must raise.
        """
        self.choices[name] = values
        chosen = values[self._case.choices.get(name, 0) % len(values)]
        for value in refused:
            chosen = value if self._is_refused(f"{name}={value!r}") else chosen
        return chosen

    def tensor(
        self,
        *shape: int,
        dtype: str | None = None,
        scale: float = 1.0,
        positive: bool = False,
        refused: tuple[str, ...] = (),
    ) -> Tensor:
        """Draw a tensor from a normal distribution, in the case's dtype by default.

        Args:
            scale: the standard deviation.
            positive: whether to take absolute values.
            refused: dtypes of this tensor for which the function must raise or be right.
        """
        kind = getattr(torch, dtype or self._case.dtype)
        return self._tensor(shape, lambda: self._numbers(shape, kind, scale, positive), kind, refused)

    def upstream(self, *shape: int) -> Tensor:
        """Draw an upstream gradient in the case's dtype. Some elements and some whole rows are zero."""
        dtype = getattr(torch, self._case.dtype)

        def make() -> Tensor:
            drawn = self._numbers(shape, dtype, 1.0, False)
            chances = [torch.rand(of, generator=self._generator) for of in (shape, (*shape[:1], *[1] * len(shape[1:])))]
            zero = ((chances[0] < _ZEROS) | (chances[1] < _ZEROS)) & drawn.isfinite()
            zero.reshape(-1)[:1] = False
            return torch.where(zero, 0.0, drawn)

        return self._tensor(shape, make, dtype)

    def index(self, *shape: int, below: int, also: tuple[int, ...] = (), refused: tuple[str, ...] = ()) -> Tensor:
        """Draw indices from 0 to `below`, exclusive.

        Args:
            also: values that replace a quarter of the indices, such as -100 for ignored labels.
            refused: dtypes for which the function must raise or be right.
        """

        def make() -> Tensor:
            drawn = torch.randint(max(1, below), shape, generator=self._generator)
            if also and drawn.numel():
                picked = torch.tensor(also)[torch.randint(len(also), shape, generator=self._generator)]
                drawn = torch.where(torch.rand(shape, generator=self._generator) < 0.25, picked, drawn)
                drawn.reshape(-1)[0] = int(drawn.reshape(-1)[0].clamp(0, max(0, below - 1)))
            if self._case.out_of_range == self._tensors and drawn.numel():
                lowest = min(-below, *also, 0)  # torch accepts negative indices down to -below
                drawn.reshape(-1)[-1] = lowest - 1 if self._case.below else below
            return drawn

        self.indices.add(self._tensors)
        return self._tensor(shape, make, torch.int64, refused)

    def counts(self, *shape: int, most: int) -> Tensor:
        """Draw integers from 0 to `most`, inclusive, that are no indices, such as lengths. The first two differ."""

        def make() -> Tensor:
            drawn = torch.randint(most + 1, shape, generator=self._generator)
            if drawn.numel() > 1:
                drawn.reshape(-1)[1] = (drawn.reshape(-1)[0] + 1) % (most + 1)
            return drawn

        return self._tensor(shape, make, torch.int64)

    def mask(self, *shape: int, share: float = 0.5) -> Tensor:
        """Draw a boolean mask with this share of true elements."""
        return self._tensor(shape, lambda: torch.rand(shape, generator=self._generator) < share, torch.bool)

    def _is_refused(self, what: str) -> bool:
        """Declare a refused argument. Returns whether the case passes it."""
        self.refused.append(what)
        return self._case.refused == len(self.refused) - 1

    def _tensor(
        self, shape: tuple[int, ...], make: Callable[[], Tensor], kind: torch.dtype, refused: tuple[str, ...] = ()
    ) -> Tensor:
        self.elements += math.prod(shape)
        if self._dry:
            tensor = torch.empty(shape, dtype=kind, device="meta")
        else:
            tensor = make()
            if self._case.changed_element[:1] == (self._tensors,) and tensor.numel():
                flat = tensor.reshape(-1)
                _change_element(flat, self._case.changed_element[1] % tensor.numel())
                tensor = flat.reshape(shape)
            if self._case.equal_rows == self._tensors and tensor.dim() and tensor.numel():
                tensor = tensor[:1].expand(shape).clone()
            tensor = tensor.to(self._device)
        for other in refused:
            if getattr(torch, other) != kind and self._is_refused(f"tensor {self._tensors} in {other}"):
                tensor = tensor.to(getattr(torch, other))
        self.numbers[id(tensor)] = self._tensors
        self._kept.append(tensor)  # keeps its id unique
        self._tensors += 1
        return tensor

    def _numbers(self, shape: tuple[int, ...], kind: torch.dtype, scale: float, positive: bool) -> Tensor:
        normal = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        info = torch.finfo(kind)
        match self._case.values:
            case "large":
                normal = normal * 8.0
            case "alike":
                normal = normal.sign() * 0.1 + 0.9 + normal * 0.01
            case "ties":
                normal = normal.round().clamp(-1, 1)
            case "equal":
                normal = torch.full(shape, 0.75, dtype=torch.float64)
            case "zero":
                normal = torch.zeros(shape, dtype=torch.float64)
            case "denormal":
                normal = normal * (info.tiny / 64)
            case "huge":
                normal = normal * float(info.max) ** 0.4
            case "spike" if normal.numel():
                normal.reshape(-1)[normal.numel() // 2] = 100.0
            case "inf" | "-inf" | "nan" if normal.numel() and self._tensors == self._case.special:
                normal.reshape(-1)[normal.numel() // 2] = float(self._case.values)
        normal = normal * scale
        return (normal.abs() if positive else normal).to(kind)


def _change_element(flat: Tensor, index: int) -> None:
    """Change one element within its range. Where possible, swap two elements, which preserves the sum."""
    other = (index + 1) % flat.numel()
    if flat.is_floating_point() and flat[index] != flat[other]:
        flat[[index, other]] = flat[[other, index]]
    elif flat.is_floating_point():
        flat[index] = flat[index] + 1.0
    elif flat.dtype == torch.bool:
        flat[index] = ~flat[index]
    else:
        different = flat[flat != flat[index]]
        flat[index] = different[0] if different.numel() else flat[index]


def drawn(example: Callable[[Draw], Arguments], case: Case, device: str = "cpu") -> Drawn:
    """Draw the arguments of a case."""
    draw = Draw(case, device=device)
    args, kwargs = split(example(draw))
    return Drawn(
        args,
        kwargs,
        draw.sizes,
        draw.chosen_sizes,
        draw.choices,
        draw.numbers,
        frozenset(draw.indices),
        tuple(draw.refused),
    )


def elements(example: Callable[[Draw], Arguments], case: Case) -> int:
    """Return the total number of elements of a case's tensors."""
    draw = Draw(case, dry=True)
    example(draw)
    return draw.elements


def split(arguments: Arguments) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Split the return value of an example function into positional and keyword arguments."""
    if (
        isinstance(arguments, tuple)
        and len(arguments) == 2
        and isinstance(arguments[0], tuple)
        and isinstance(arguments[1], dict)
    ):
        return arguments
    if isinstance(arguments, dict):
        return (), arguments
    return (arguments if isinstance(arguments, tuple) else (arguments,)), {}

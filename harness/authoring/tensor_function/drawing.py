"""Arguments of a function, drawn from a case: sizes, choices, dtype, kind of values and a seed.

    def example(draw):
        rows, width = draw.size("rows"), draw.size("width", multiple_of=8)
        return draw.tensor(rows, width), draw.tensor(width), draw.choice("eps", 1e-5, 1e-2)

The function that draws is the same for all cases; the adversary chooses the case. So it can change one size, or one
choice, or one element, and leave everything else as it was.
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
"""The sizes of the first, second, … dimension: none is 1, and none divides another."""
_ZEROS: Final = 0.2
"""The share of zeros in a gradient from above, and of its rows that have nothing else."""
VALUES: Final = ("normal", "large", "alike", "ties", "equal", "zero", "denormal", "huge", "spike", "inf", "-inf", "nan")
"""The kinds of values of floating tensors."""


@dataclass(frozen=True)
class Case:
    """One set of arguments, from which equal arguments are drawn again.

    Attributes:
        dtype: of the floating tensors, such as `bfloat16`.
        sizes, choices: those that differ from the first ones, by name; a choice by its place.
        values: one of `VALUES`.
        seed: of all contents.
        touched: a tensor of which one element differs, and its place; empty if none does. Tensors are named by their
            numbers in the order of drawing.
        special: the tensor that has the infinity or the NaN.
        outside: an index tensor of which one element lies outside its range; -1 if none does.
        below: whether that element is too small, and not too large.
        refused: the place, among what the example names as refused, of what is given; -1 for nothing.
        alike: a tensor that is equal along its first dimension; -1 if none is.
    """

    dtype: str = "float32"
    sizes: Mapping[str, int] = field(default_factory=dict)
    choices: Mapping[str, int] = field(default_factory=dict)
    values: str = "normal"
    seed: int = 0
    touched: tuple[int, ...] = ()
    special: int = 0
    outside: int = -1
    below: bool = False
    refused: int = -1
    alike: int = -1

    def with_size(self, name: str, size: int) -> Case:
        """The case with another size."""
        return replace(self, sizes={**self.sizes, name: size})

    def with_choice(self, name: str, place: int) -> Case:
        """The case with another choice."""
        return replace(self, choices={**self.choices, name: place})

    def text(self) -> str:
        """What differs from the first case, in words."""
        named = [f"{name}={size}" for name, size in self.sizes.items()]
        named += [f"{name}#{place}" for name, place in self.choices.items()]
        named += [] if self.values == "normal" else [f"values {self.values}"]
        return " ".join([self.dtype, *named, f"seed {self.seed}"])


Arguments = Any
"""What a drawing function returns: a tuple of arguments, a dict of those by name, or a pair of both."""


@dataclass(frozen=True)
class Drawn:
    """Arguments, and what the adversary has to know about them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, int | None, int]]
    """Least, most and step of each size."""
    taken: Mapping[str, int]
    """Each size of this case."""
    choices: Mapping[str, tuple[Any, ...]]
    numbers: Mapping[int, int]
    """The number of each tensor in the order of drawing, by its id."""
    indices: frozenset[int]
    """The numbers of the tensors of indices."""
    refused: tuple[str, ...]
    """What the example names as refused, in words."""


class Draw:
    """Hands out sizes, choices and contents of one case."""

    def __init__(self, case: Case, *, device: str = "cpu", dry: bool = False) -> None:
        """Args:
        dry: whether tensors have no contents, for asking how large they would be.
        """
        self._case, self._device, self._dry = case, device, dry
        self._generator = torch.Generator().manual_seed(case.seed * 7919 + 1)
        self._tensors = 0
        self._kept: list[Tensor] = []
        self.sizes: dict[str, tuple[int, int | None, int]] = {}
        self.taken: dict[str, int] = {}
        self.choices: dict[str, tuple[Any, ...]] = {}
        self.numbers: dict[int, int] = {}
        self.indices: set[int] = set()
        self.refused: list[str] = []
        self.elements = 0

    def size(
        self, name: str, *, least: int = 1, most: int | None = None, multiple_of: int = 1, usual: int | None = None
    ) -> int:
        """A size of tensors. Different names stand for sizes that may differ."""
        if name not in self.sizes:
            self.sizes[name] = (least, most, multiple_of)
        place = list(self.sizes).index(name)
        wanted = self._case.sizes.get(name, usual if usual is not None else BASE[place % len(BASE)] * multiple_of)
        wanted = wanted if name in self._case.sizes and wanted == 0 else max(least, wanted)
        wanted = -(-wanted // multiple_of) * multiple_of
        self.taken[name] = wanted if most is None else min(most, wanted)
        return self.taken[name]

    def choice(self, name: str, *values: Any, refused: tuple[Any, ...] = ()) -> Any:
        """One of the values of a scalar, a flag or a word; the first one usually.

        Args:
            refused: values for which the function has to raise.
        """
        self.choices[name] = values
        taken = values[self._case.choices.get(name, 0) % len(values)]
        for value in refused:
            taken = value if self._is_refused(f"{name}={value!r}") else taken
        return taken

    def tensor(
        self,
        *shape: int,
        dtype: str | None = None,
        scale: float = 1.0,
        positive: bool = False,
        refused: tuple[str, ...] = (),
    ) -> Tensor:
        """A tensor of normally distributed numbers, of the case's dtype unless one is named.

        Args:
            scale: the standard deviation.
            positive: whether the numbers are those of the absolute value.
            refused: dtypes of this tensor alone for which the function has to raise.
        """
        kind = getattr(torch, dtype or self._case.dtype)
        return self._made(shape, lambda: self._numbers(shape, kind, scale, positive), kind, refused)

    def upstream(self, *shape: int) -> Tensor:
        """The gradient of an output, of the case's dtype. Some of its numbers are zero, and so are some whole rows."""
        kind = getattr(torch, self._case.dtype)

        def made() -> Tensor:
            drawn = self._numbers(shape, kind, 1.0, False)
            chances = [torch.rand(of, generator=self._generator) for of in (shape, (*shape[:1], *[1] * len(shape[1:])))]
            zero = ((chances[0] < _ZEROS) | (chances[1] < _ZEROS)) & drawn.isfinite()
            zero.reshape(-1)[:1] = False
            return torch.where(zero, 0.0, drawn)

        return self._made(shape, made, kind)

    def index(self, *shape: int, below: int, also: tuple[int, ...] = (), refused: tuple[str, ...] = ()) -> Tensor:
        """Indices from 0 to `below`, and a quarter of other values, such as -100 for what is ignored.

        Args:
            refused: other dtypes for which the function has to raise.
        """

        def made() -> Tensor:
            drawn = torch.randint(max(1, below), shape, generator=self._generator)
            if also and drawn.numel():
                picked = torch.tensor(also)[torch.randint(len(also), shape, generator=self._generator)]
                drawn = torch.where(torch.rand(shape, generator=self._generator) < 0.25, picked, drawn)
                drawn.reshape(-1)[0] = int(drawn.reshape(-1)[0].clamp(0, max(0, below - 1)))
            if self._case.outside == self._tensors and drawn.numel():
                lowest = min(-below, *also, 0)  # -1 stands for the last one in torch's own indexing
                drawn.reshape(-1)[-1] = lowest - 3 if self._case.below else below + 3
            return drawn

        self.indices.add(self._tensors)
        return self._made(shape, made, torch.int64, refused)

    def mask(self, *shape: int, share: float = 0.5) -> Tensor:
        """A mask, of which this share is true."""
        return self._made(shape, lambda: torch.rand(shape, generator=self._generator) < share, torch.bool)

    def _is_refused(self, what: str) -> bool:
        """Note something that is refused; whether the case gives it."""
        self.refused.append(what)
        return self._case.refused == len(self.refused) - 1

    def _made(
        self, shape: tuple[int, ...], make: Callable[[], Tensor], kind: torch.dtype, refused: tuple[str, ...] = ()
    ) -> Tensor:
        self.elements += math.prod(shape)
        if self._dry:
            meta = torch.empty(shape, dtype=kind, device="meta")
        else:
            meta = make()
            if self._case.touched[:1] == (self._tensors,) and meta.numel():
                flat = meta.reshape(-1)
                _touch(flat, self._case.touched[1] % meta.numel())
                meta = flat.reshape(shape)
            if self._case.alike == self._tensors and meta.dim() and meta.numel():
                meta = meta[:1].expand(shape).clone()
            meta = meta.to(self._device)
        for other in refused:
            if getattr(torch, other) != kind and self._is_refused(f"tensor {self._tensors} in {other}"):
                meta = meta.to(getattr(torch, other))
        self.numbers[id(meta)] = self._tensors
        self._kept.append(meta)  # so that no other tensor gets its id
        self._tensors += 1
        return meta

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


def _touch(flat: Tensor, place: int) -> None:
    """Change one element so that it stays in its range, and two where possible, so that the sum stays."""
    other = (place + 1) % flat.numel()
    if flat.is_floating_point() and flat[place] != flat[other]:
        flat[[place, other]] = flat[[other, place]]
    elif flat.is_floating_point():
        flat[place] = flat[place] + 1.0
    elif flat.dtype == torch.bool:
        flat[place] = ~flat[place]
    else:
        rest = flat[flat != flat[place]]
        flat[place] = rest[0] if rest.numel() else flat[place]


def drawn(example: Callable[[Draw], Arguments], case: Case, device: str = "cpu") -> Drawn:
    """The arguments of a case."""
    draw = Draw(case, device=device)
    args, kwargs = split(example(draw))
    return Drawn(
        args, kwargs, draw.sizes, draw.taken, draw.choices, draw.numbers, frozenset(draw.indices), tuple(draw.refused)
    )


def elements(example: Callable[[Draw], Arguments], case: Case) -> int:
    """How many elements the tensors of a case have, all together."""
    draw = Draw(case, dry=True)
    example(draw)
    return draw.elements


def split(arguments: Arguments) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Positional arguments and those by name, of what a drawing function returned."""
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

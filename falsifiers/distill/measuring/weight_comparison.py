"""Compares an exported file, tensor by tensor, with the weights in memory and with the initial weights."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from falsifiers.distill.measuring.weight_files import Unreadable, read_safetensors
from harness import propagates

UNFINISHED = (".part", ".partial", ".tmp", ".incomplete")
"""Suffixes of files that are not written to their end."""

Read = Callable[[Path], tuple[dict[str, Tensor], dict[str, str]]]
"""Takes a file; returns its tensors on the CPU and its metadata. Raises OSError or Unreadable."""


@dataclass
class Inspection:
    """The findings about one file; the lists name tensors.

    Attributes:
        readable: whether the file exists and parses as safetensors to its end.
        file_bytes: its size, 0 if there is no file.
        exported: the tensors in it, on the CPU.
        metadata: its string metadata.
        missing, unexpected: in the student and not in the file, and the reverse.
        misshapen, mistyped: their shape or dtype is not the live parameter's.
        not_finite: tensors with a NaN or an infinity, whether the student has them or not.
        unmoved: equal to the initial weights.
        different: not equal, to the bit, to the live weights (of those that have the live shape and dtype).
        movements: root mean square of `w - w_init` of each tensor that has the live shape, in float64.
    """

    readable: bool = False
    file_bytes: int = 0
    exported: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    mistyped: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)
    unmoved: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    movements: dict[str, float] = field(default_factory=dict)

    @property
    def loadable(self) -> bool:
        """Whether the tensors fit the student's architecture, so that it can run with them."""
        return self.readable and not (self.missing or self.unexpected or self.misshapen)


@propagates
def snapshot(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU."""
    return {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}


@propagates
def weight_bytes(weights: Mapping[str, Tensor]) -> int:
    """The bytes of the tensors' elements, without any file's overhead."""
    return sum(weight.numel() * weight.element_size() for weight in weights.values())


def checkpoints_in(directory: Path) -> dict[int, Path]:
    """The files with a checkpoint's name and any suffix, by step in order; empty if there is no directory.

    F-DISTILL-CKPT-PERIOD-001 prescribes the name for our own trainer. Files in subfolders do not count: they do not
    have their final name yet.
    """
    checkpoints: dict[int, Path] = {}
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if (step := checkpoint_step(path)) is not None:
                checkpoints[step] = path
    return dict(sorted(checkpoints.items()))


def checkpoint_step(path: Path) -> int | None:
    """The step in a checkpoint's name; None for other names."""
    prefix, _, step = path.stem.rpartition("-")
    return int(step) if prefix == "ckpt-step" and step.isdecimal() else None


def is_readable(path: Path) -> bool:
    """Whether a file is complete safetensors and holds a tensor."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="pt") as file:
        return len(file.keys()) > 0
    return False


def metadata_of(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file; empty if it cannot be read."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})
    return {}


def unlike_tensors(first: Path, second: Path) -> list[str]:
    """The names of the tensors that two safetensors files do not both hold with the same dtype, shape and bits.

    One tensor of each file is in memory at a time. If a file cannot be read, the result is its name.
    """
    try:
        with safe_open(first, framework="pt") as first_file, safe_open(second, framework="pt") as second_file:
            names, others = set(first_file.keys()), set(second_file.keys())
            return sorted(names ^ others) + [
                name
                for name in sorted(names & others)
                if not same_tensor(first_file.get_tensor(name), second_file.get_tensor(name))
            ]
    except (OSError, SafetensorError) as error:
        return [f"{first.name}: {error}"]


def same_tensor(first: Tensor, second: Tensor) -> bool:
    """Equality of dtype, shape and every byte."""
    return (first.shape, first.dtype) == (second.shape, second.dtype) and same_bits(first, second)


def inspect_export(
    path: Path, live: Mapping[str, Tensor], initial: Mapping[str, Tensor], read: Read = read_safetensors
) -> Inspection:
    """Read the file at `path` and compare it with the live weights and with those at the start, by name.

    Args:
        read: reads the file; safetensors by default.
    """
    seen = Inspection()
    with contextlib.suppress(OSError):
        seen.file_bytes = path.stat().st_size
    try:
        seen.exported, seen.metadata = read(path)
        seen.readable = True
    except (OSError, Unreadable) as error:
        print(f"{path} cannot be read: {error}")
    seen.not_finite = sorted(name for name, exported in seen.exported.items() if not torch.isfinite(exported).all())
    seen.missing = sorted(live.keys() - seen.exported.keys())
    seen.unexpected = sorted(seen.exported.keys() - live.keys())
    for name, exported, now, start in _pairs(seen.exported, live, initial):
        if exported.dtype != now.dtype:
            seen.mistyped.append(name)
        if exported.shape != now.shape:
            seen.misshapen.append(name)
            continue
        if exported.dtype == now.dtype and not same_bits(exported, now):
            seen.different.append(name)
        movement = (exported.double() - start.double()).square().mean().sqrt().item()
        seen.movements[name] = movement
        if movement == 0.0:
            seen.unmoved.append(name)
    return seen


def _pairs(
    exported: Mapping[str, Tensor], live: Mapping[str, Tensor], initial: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """The name, exported, live and initial tensor of every name in all three; live tensors are moved to the CPU."""
    for name in sorted(exported.keys() & live.keys() & initial.keys()):
        yield name, exported[name], live[name].detach().cpu(), initial[name]


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Equality of every byte: -0.0 differs from 0.0, and a NaN equals itself."""
    return torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))

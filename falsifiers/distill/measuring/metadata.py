"""Whether the metadata of a weight file say of a run what the falsifier measured of it."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falsifiers.distill.oracle.corpus import Text
from harness import propagates

__all__ = ["KEYS", "missing", "number", "untrue_loss", "untrue_names", "untrue_settings", "untrue_step"]

KEYS = ("teacher_model", "temperature", "alpha", "epoch", "step", "final_loss")
"""What an export may say of its run."""

_SEED = re.compile(r"seed\D?(\d+)")


@propagates
def missing(metadata: Mapping[str, str], required: Sequence[str]) -> list[str]:
    """The required keys that are not there."""
    return [key for key in required if key not in metadata]


@propagates
def number(metadata: Mapping[str, str], key: str) -> float:
    """The number of a key; NaN if it is not there, or is none."""
    with contextlib.suppress(KeyError, ValueError):
        return float(metadata[key])
    return math.nan


@propagates
def untrue_settings(metadata: Mapping[str, str], parameters: Mapping[str, Any]) -> list[str]:
    """Temperature and alpha, where they are not the parameters'."""
    return [key for key in ("temperature", "alpha") if key in metadata and not _is(metadata, key, parameters[key])]


@propagates
def untrue_loss(metadata: Mapping[str, str], loss: float) -> list[str]:
    """The loss, where it is not this one to the digits that a trainer may print."""
    return ["final_loss"] if "final_loss" in metadata and not _is(metadata, "final_loss", loss) else []


@propagates
def untrue_step(metadata: Mapping[str, str], step: int) -> list[str]:
    """The step, where it is not this one."""
    return ["step"] if "step" in metadata and number(metadata, "step") != step else []


@propagates
def untrue_names(metadata: Mapping[str, str], parameters: Mapping[str, Any], cache: Path, steps: int) -> list[str]:
    """The teacher's name and the epoch, where they cannot be those of a run of so many steps.

    The name must have the model's in it, and a seed in it must be the teacher's. The epoch is a count of passes over
    the training text, from 0 or from 1.
    """
    untrue = []
    name = metadata.get("teacher_model")
    if name is not None:
        seeds = {int(seed) for seed in _SEED.findall(name)}
        if parameters["model"] not in name or seeds - {parameters["teacher_seed"]}:
            untrue.append("teacher_model")
    if "epoch" in metadata:
        text = sum(len(block) for block in Text.read(parameters, cache).training)
        passes = steps * parameters["batch"] * parameters["sequence"] / text
        if not math.floor(passes) <= number(metadata, "epoch") <= math.floor(passes) + 1:
            untrue.append("epoch")
    return untrue


def _is(metadata: Mapping[str, str], key: str, expected: float) -> bool:
    return math.isclose(number(metadata, key), expected, rel_tol=1e-3)

"""Checks the metadata of a weight file against what the falsifier measured of the run."""

import contextlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falsifiers.distill.oracle.corpus import Text
from harness import propagates

KEYS = ("name", "architecture", "teacher_model", "temperature", "alpha", "epoch", "step", "final_loss")
"""Keys with which an export may describe its run."""

_ARCHITECTURE = "Qwen2ForCausalLM"
"""Of every model that the parameters can name (PR #1856)."""
_SEED = re.compile(r"seed\D?(\d+)")


@propagates
def missing(metadata: Mapping[str, str], required: Sequence[str]) -> list[str]:
    """The required keys that are absent."""
    return [key for key in required if key not in metadata]


@propagates
def number(metadata: Mapping[str, str], key: str) -> float:
    """The number under a key; NaN if it is absent or no number."""
    with contextlib.suppress(KeyError, ValueError):
        return float(metadata[key])
    return math.nan


@propagates
def untrue_settings(metadata: Mapping[str, str], parameters: Mapping[str, Any]) -> list[str]:
    """Temperature and alpha, if they differ from the parameters."""
    return [key for key in ("temperature", "alpha") if key in metadata and not _is(metadata, key, parameters[key])]


@propagates
def untrue_loss(metadata: Mapping[str, str], loss: float) -> list[str]:
    """The loss, if it differs from this one in the digits that are printed."""
    return ["final_loss"] if "final_loss" in metadata and not _is(metadata, "final_loss", loss) else []


@propagates
def untrue_step(metadata: Mapping[str, str], step: int) -> list[str]:
    """The step, if it differs from this one."""
    return ["step"] if "step" in metadata and number(metadata, "step") != step else []


@propagates
def untrue_names(metadata: Mapping[str, str], parameters: Mapping[str, Any], cache: Path, steps: int) -> list[str]:
    """Names, architecture and epoch, if they cannot belong to a run of this many steps.

    Both names must contain the model's name, and a seed in the teacher's name must be the teacher's. The epoch counts
    passes over the training text, from 0 or from 1.
    """
    untrue = [] if parameters["model"] in metadata.get("name", parameters["model"]) else ["name"]
    if metadata.get("architecture", _ARCHITECTURE) != _ARCHITECTURE:
        untrue.append("architecture")
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

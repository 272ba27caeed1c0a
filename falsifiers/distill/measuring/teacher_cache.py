"""Checks that a subject's teacher cache returns neither another teacher nor a damaged file."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.oracle.cache import kept
from falsifiers.distill.running.further_subjects import setting_of
from falsifiers.distill.running.shown import not_refused, shown
from harness import Trial, Unobserved
from harness.authoring.shadow_step import relative_difference

SMALL = {"model": "qwen2-tiny", "tokenizer": "bytes", "teacher_steps": 2, "teacher_learning_rate": 0.03}
"""The parameters of a small teacher. Its two large steps both change its answers."""

_AS_LARGE = 2**20  # elements, more than the small teacher has


def measure_teacher_cache(trial: Trial[Any]) -> dict[str, Tensor]:
    """Build small teachers with one cache: with other parameters, and after damage to each cached file.

    Returns: the weights of the first teacher; hidden if the subject does not show them.
    """
    parameters = {**trial.parameters, **SMALL}
    first = _teacher(trial, SMALL)
    if isinstance(first, Unobserved):
        trial.measure(unchanged_by=first, damage=first)
        return first
    text = trial.workspace / "other_text.txt"
    text.write_text("".join(f"line {number} of a text that says {number**2} things\n" for number in range(9000)))
    others = {
        "corpus": str(text),
        "dtype": "float64",
        "sequence": max(2, parameters["sequence"] // 2),
        "teacher_batch": parameters["teacher_batch"] + 1,
        "teacher_learning_rate": 2 * parameters["teacher_learning_rate"],
        "teacher_seed": parameters["teacher_seed"] + 1,
        "teacher_steps": 3,
    }
    same = [name for name, value in others.items() if _equal(first, _teacher(trial, {**SMALL, name: value}))]
    for file in _cache(trial).rglob("*"):
        if file.is_file() and file.stat().st_size:
            content = bytearray(file.read_bytes())
            content[-1] ^= 0xFF
            file.unlink()  # a subject may have mapped it into its memory
            file.write_bytes(content)
    again = _teacher(trial, SMALL)
    seen, expected = (torch.cat([of[name].flatten() for name in sorted(of)]) for of in (again, first))
    trial.measure(unchanged_by=same, damage=relative_difference(seen, expected, expected))
    return first


def _cache(trial: Trial[Any]) -> Path:
    return trial.workspace / "teachers" / "cache"


def _teacher(trial: Trial[Any], changed: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of another subject's teacher; hidden if it does not show them."""
    setting = replace(setting_of(trial, "teachers", **changed), cache=_cache(trial))
    with trial.subject_fault():
        subject = type(trial.subject)(setting)
        weights = not_refused(
            lambda: shown(subject, "teacher_weights"),
            alike=lambda: kept(_cache(trial), "as-large", {}, lambda: {"weights": torch.zeros(_AS_LARGE)}),
        )
        if isinstance(weights, Unobserved):
            return weights
        if not weights:
            raise ValueError("teacher_weights() returned none")
        return {name: weight.detach().cpu().clone() for name, weight in weights.items()}


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name]) for name in first
    )

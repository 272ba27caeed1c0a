"""F-DISTILL-PREP-001: the teacher's answers, computed beforehand, are its answers, and the same every time."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from falsifiers.distill.another import setting_of
from falsifiers.distill.held_out import divergence
from falsifiers.distill.subject import Precomputing
from falsifiers.distill.watch import read_back_steps
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Precomputing]) -> None:
    """Compare the file's answers with the teacher's own; make the file again, also where another one lies already."""
    asked = trial.parameters
    with trial.subject_fault():
        path = Path(trial.subject.precompute(trial.workspace / "answers", asked["top_k"]))
    once = path.read_bytes()
    cosines, tempered, divergences, positions = [], [], [], 0
    for step in range(1, asked["steps"] + 1):
        with trial.subject_fault():
            inputs, _ = trial.subject.batch(step)
            online = trial.subject.teacher_logits(inputs)
            cached = trial.subject.cached_logits(path, step)
            if cached.shape != online.shape:
                raise ValueError(
                    f"cached logits of shape {tuple(cached.shape)}, the teacher's are {tuple(online.shape)}"
                )
        positions += inputs.numel()
        for ours, theirs in zip(cached.to(online.device), online, strict=True):  # rows, as float64 is large
            cosines.append(_cosine(ours, theirs, 1.0))
            tempered.append(_cosine(ours, theirs, asked["temperature"]))
            divergences.append(divergence(theirs, ours, 1.0).item())
    read_back_steps(trial, asked["steps"] if divergences else 0)
    trial.measure(
        cosine_distance=1 - fmean(cosines),
        cosine_distance_at_temperature=1 - fmean(tempered),
        divergence=fmean(divergences),
        bytes_a_position=len(once) / positions,
        unlike=[name for name, content in _made_again(trial).items() if content != once],
        digest=hashlib.sha256(once).hexdigest(),
    )


def _cosine(one: Tensor, other: Tensor, temperature: float) -> float:
    """The cosine of two rows' probabilities at a temperature, in float64, averaged over the positions."""
    probabilities = [(logits.double() / temperature).softmax(dim=-1) for logits in (one, other)]
    return float(torch.cosine_similarity(*probabilities, dim=-1).mean())


def _made_again(trial: Trial[Precomputing]) -> dict[str, bytes]:
    """The bytes of files that should all be the first one's, by how they were made."""
    own = setting_of(trial, "again")
    others = {
        "over that of another teacher": replace(
            own, parameters={**own.parameters, "teacher_seed": own.parameters["teacher_seed"] + 1, "teacher_steps": 1}
        ),
        "over that of other text": replace(own, seed=own.seed + 1),
    }
    kind, top_k = type(trial.subject), trial.parameters["top_k"]
    files = {}
    with trial.subject_fault():
        files["by a fresh subject"] = Path(kind(own).precompute(trial.workspace / "again", top_k))
        for number, (name, setting) in enumerate(others.items()):
            place = trial.workspace / f"over-{number}"
            kind(setting).precompute(place, top_k)
            files[name] = Path(trial.subject.precompute(place, top_k))
    return {name: file.read_bytes() for name, file in files.items()}

"""F-PD-REMAT-001: recomputing layers in the backward pass lowers the peak and changes no gradient."""

from dataclasses import replace

import torch

from falsifiers.param_decomp.peak import LiveStorage
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import Call, Watched, drawn_steps, measure_steps, watched_step
from harness import Trial
from harness.authoring.shadow_step import differences


def falsify(trial: Trial[Trainer]) -> None:
    """Make the same steps with and without rematerialization, compare them, and measure the peak of one more step."""
    plain, again = (_further(trial, remat=remat) for remat in (False, True))
    steps = drawn_steps(trial)
    gradients, terms, redrawn, once = [], [], [], set[str]()
    pairs = measure_steps(trial, again, steps)
    for watched, _ in pairs:
        other = watched_step(trial, plain, watched.before.step)
        gradients.append(max(difference.ratio for difference in differences("", watched.gradients, other.gradients)))
        terms += [abs(watched.reported[name] - value) for name, value in other.reported.items()]
        redrawn += _redrawn(watched)
        once |= {_layer(call) for forward in watched.forwards for call in forward.calls}.difference(
            map(_layer, watched.again)
        )
    peaks = {name: _peak(trial, subject, len(steps)) for name, subject in (("plain", plain), ("again", again))}
    trial.measure(
        gradient_differences=gradients,
        term_differences=terms,
        redrawn=redrawn,
        computed_once=sorted(once),
        plain_peak=peaks["plain"],
        remat_peak=peaks["again"],
    )


def _further(trial: Trial[Trainer], *, remat: bool) -> Trainer:
    """A subject of the trial's kind, with or without rematerialization."""
    with trial.subject_fault():
        return type(trial.subject)(replace(trial.setting, parameters={**trial.parameters, "remat": remat}))


def _layer(call: Call) -> str:
    return ".".join(call.site.split(".")[:2])


def _redrawn(watched: Watched) -> list[float]:
    """For each call of the backward pass, the smallest difference of its mask from an earlier mask of its site."""
    distances = []
    for call in watched.again:
        masks = [old.masking.mask for forward in watched.forwards for old in forward.calls if old.site == call.site]
        distances.append(min(float((call.masking.mask - mask).abs().max()) for mask in masks))
    return distances


def _peak(trial: Trial[Trainer], subject: Trainer, step: int) -> int:
    """The peak of live bytes in a step: by the allocator on a GPU, by all storages elsewhere."""
    with trial.subject_fault():
        if trial.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            subject.step(step)
            return torch.cuda.max_memory_allocated() - before
        with LiveStorage() as storage:
            subject.step(step)
        return storage.peak

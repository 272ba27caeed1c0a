"""F-PD-DONATION-001: an update without donated buffers needs memory for a second state."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from falsifiers.param_decomp.peak import LiveStorage
from harness import Setting, Trial
from harness.authoring.shadow_step import relative_difference


class Updating(Protocol):
    """Weights with Adam's moments, and two ways to update them; built as `Subject(setting)`."""

    def __init__(self, setting: Setting) -> None: ...

    def state(self) -> Mapping[str, Tensor]:
        """Live weights and moments by name."""
        ...

    def update_donating(self) -> None:
        """Make an optimizer step in place."""
        ...

    def update_keeping(self) -> None:
        """Make the same step into new memory; the old state stays until the new one is complete."""
        ...


def falsify(trial: Trial[Updating]) -> None:
    """Make the same update in both ways, and compare peaks, storages and results."""
    peaks, kept, states = {}, {}, {}
    for way in ("donating", "keeping"):
        with trial.subject_fault():
            subject = type(trial.subject)(trial.setting)
            before = {name: tensor.data_ptr() for name, tensor in subject.state().items()}
            update = subject.update_donating if way == "donating" else subject.update_keeping
            peaks[way] = _peak(trial, update)
            after = subject.state()
        kept[way] = sum(tensor.data_ptr() == before[name] for name, tensor in after.items()) / len(before)
        states[way] = {name: tensor.detach().cpu() for name, tensor in after.items()}
        size = sum(tensor.numel() * tensor.element_size() for tensor in after.values())
    trial.measure(
        state_bytes=size,
        donating_peak=peaks["donating"],
        keeping_peak=peaks["keeping"],
        state_shares=(peaks["keeping"] - peaks["donating"]) / size,
        donating_kept=kept["donating"],
        keeping_kept=kept["keeping"],
        differences=[
            relative_difference(tensor, states["keeping"][name], states["keeping"][name])
            for name, tensor in states["donating"].items()
        ],
    )
    trial.resolve(device=next(iter(after.values())).device.type)


def _peak(trial: Trial[Updating], update: object) -> int:
    """The largest number of bytes that an update allocates in addition."""
    assert callable(update)
    if trial.device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        update()
        return torch.cuda.max_memory_allocated() - before
    with LiveStorage() as storage:
        update()
    return storage.peak

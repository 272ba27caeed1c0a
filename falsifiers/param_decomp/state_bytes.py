"""F-PD-STATE-BYTES-001: the 27-site state has 98 GB of components and 360 GB in all."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from falsifiers.param_decomp.subject import Trainer
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Run a step on tensors without data, and add the bytes that remain after it."""
    state = measured_state(trial)
    giga = {f"{name}_gb": size / 1e9 for name, size in state.items()}
    trial.measure(
        **giga, state_gb=sum(giga[f"{name}_gb"] for name in ("components", "component_adam", "importance_and_adam"))
    )
    trial.resolve(device="cpu")  # tensors without data have no device; what ran is Python


def measured_state(trial: Trial[Trainer]) -> dict[str, int]:
    """The bytes between two steps: components, their Adam slots, the importance model with its slots, and sources."""
    with trial.subject_fault():
        trial.subject.step(0)
        slots = trial.subject.slots()
        components, importance = trial.subject.components(), trial.subject.importance_weights()
        sources = trial.subject.sources()
    return {
        "components": _bytes(components.values()),
        "component_adam": _bytes(_moments(slots, components)),
        "importance_and_adam": _bytes([*importance.values(), *_moments(slots, importance)]),
        "sources_and_adam": _bytes([*sources.values(), *_moments(slots, [f"{name}.source" for name in sources])]),
    }


def _moments(slots: Mapping[str, Mapping[str, Tensor]], names: Iterable[str]) -> list[Tensor]:
    """Adam's slots of these tensors, without step counts."""
    return [slot for name in names for key, slot in slots.get(name, {}).items() if key != "step"]


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

"""F-PD-CHUNKS-001: a step runs one stochastic forward for each chunk of nine sites and each sample."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.step import Before
from falsifiers.param_decomp.subject import Masking, Trainer
from falsifiers.param_decomp.watching import Call, Forward, Watched, drawn_steps, measure_steps, wrong_chunks
from harness import Trial

_ROUTED = torch.zeros(1, dtype=torch.bool)
"""A placeholder for a route whose values do not matter."""


def falsify(trial: Trial[Trainer]) -> None:
    """Train, count the masked forwards of each step, and record which sites each of them masks.

    In full, a step of the stated size follows, on tensors without data: no machine has 360 GB, and which sites a
    forward masks does not depend on values.
    """
    config = configuration_of(trial.parameters)
    if "at_size" in trial.parameters:
        parameters = {"configuration": trial.parameters["at_size"], "adversarial": 0.0}
        with trial.subject_fault():
            subject = type(trial.subject)(replace(trial.setting, parameters=parameters))
            chunks = chunks_of_first_step(subject, parameters)
        trial.measure(**chunks)
    forwards, wrong = [], list[str]()
    for watched, _ in measure_steps(trial, trial.subject, drawn_steps(trial)):
        forwards.append(len(watched.stochastic(len(trial.subject.sites))))
        wrong += wrong_chunks(config, watched)
    trial.measure(forwards=forwards, wrong_chunks=wrong)


def chunks_of_first_step(subject: Trainer, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Run the first step of a subject whose tensors may have no data, and return the sites that its forwards mask.

    Without data, the positions of a route are unknown, so an adversarial forward cannot be told from a stochastic one
    of all sites: the parameters must ask for no adversarial forward.
    """
    forwards: list[Forward] = []

    def starts(module: Module, arguments: Any) -> None:
        if not _in_backward():
            forwards.append(Forward())

    def calls(site: str) -> Callable[..., None]:
        def kept(module: Module, arguments: tuple[Any, ...], output: Tensor) -> None:
            if len(arguments) > 1 and arguments[1] is not None and not _in_backward():
                mask: Masking = arguments[1]
                forwards[-1].calls.append(Call(site, arguments[0], Masking(mask.mask, mask.delta, _ROUTED), output))

        return kept

    with ExitStack() as stack:
        stack.callback(subject.target.register_forward_pre_hook(starts).remove)
        for name, site in subject.sites.items():
            stack.callback(site.register_forward_hook(calls(name)).remove)
        subject.step(0)
    watched = Watched(Before(0, torch.empty(0), {}, {}, {}, {}, {}), forwards, (), {}, {}, {}, {})
    return {
        "components_at_size": sorted({subject.components()[f"{name}.V"].shape[1] for name in subject.sites}),
        "sites_at_size": [len(forward.calls) for forward in watched.stochastic(len(subject.sites))],
        "wrong_chunks_at_size": wrong_chunks(configuration_of(parameters), watched),
    }


def _in_backward() -> bool:
    """Whether autograd is running: a layer that is called now is recomputed."""
    return torch._C._current_graph_task_id() != -1

"""F-GB10-FLCE-MEM-001: the fused loss saves about 60 % of a step's memory."""

import dataclasses
import gc
from collections.abc import Callable

import torch
from torch import Tensor
from torch.compiler import set_stance

from falsifiers.nanochat.subject import Batch, Paths
from harness import Trial
from harness.tools.probe.prediction import predict

Peak = Callable[[Callable[[], Callable[[], object]]], int]
"""From a function that builds a step to the bytes at the peak of two steps."""


def falsify(trial: Trial[Paths]) -> None:
    """Measure the peaks of whole steps and of the loss alone; without a GPU, predict them for one."""
    parameters = trial.parameters
    cuda = trial.device != "cpu"
    subject = trial.subject if cuda else type(trial.subject)(dataclasses.replace(trial.setting, device="cuda"))
    dtypes: set[str] = set()
    peak: Peak = _measured if cuda else _predicted
    with trial.subject_fault():
        steps = [
            peak(lambda path=path: _step(subject, path, parameters, dtypes))
            for path in ("current", *parameters["paths"])
        ]
        with set_stance("force_eager"):  # a compiled loss makes all logits too, of half as many bits
            losses = [
                peak(lambda path=path: _loss(subject, path, parameters)) for path in ("current", *parameters["paths"])
            ]
    trial.measure(
        step_bytes=steps,
        loss_bytes=losses,
        step_saved=[1.0 - step / steps[0] for step in steps[1:]],
        loss_saved=[1.0 - loss / losses[0] for loss in losses[1:]],
    )
    trial.resolve(device=torch.device(trial.device).type, dtype="+".join(sorted(dtypes)))


def _step(subject: Paths, path: str, parameters: dict[str, int], dtypes: set[str]) -> Callable[[], object]:
    model = subject.model(path)
    dtypes |= {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    tokens = torch.zeros(parameters["rows"], parameters["sequence"], dtype=torch.int64, device="cuda")

    def step() -> None:
        model.zero_grad()
        subject.forward(model, Batch(tokens, tokens)).backward()

    return step


def _loss(subject: Paths, path: str, parameters: dict[str, int]) -> Callable[[], object]:
    """Return a call of the loss with its gradients. Its inputs are part of every path's peak."""
    dtype, loss = getattr(torch, parameters["dtype"]), subject.loss(path)  # type: ignore[call-overload]
    hidden = torch.randn(parameters["rows"] * parameters["sequence"], parameters["width"], dtype=dtype, device="cuda")
    head = torch.randn(parameters["vocabulary"], parameters["width"], dtype=dtype, device="cuda")
    targets = torch.zeros(len(hidden), dtype=torch.int64, device="cuda")

    def step() -> tuple[Tensor, ...]:
        inputs = hidden.detach().requires_grad_(), head.detach().requires_grad_()
        return torch.autograd.grad(loss(*inputs, targets), inputs)

    return step


def _measured(build: Callable[[], Callable[[], object]]) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step = build()
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - held


def _predicted(build: Callable[[], Callable[[], object]]) -> int:
    return predict(build).allocated

"""F-GB10-SPEEDUP-001: which path makes a step faster, by alternating steps."""

import json
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from falsifiers.nanochat.subject import Batch, Paths, read_back
from harness import NotMeasured, Trial
from harness.authoring.timing import interleave

_PATHS = ("current", "liger", "triton", "own")
_AGAIN = "current again"
_WARMUP = 3


def falsify(trial: Trial[Paths]) -> None:
    """Compare loss and gradients of the paths; then time alternating steps of all paths, the current one twice.

    Raises:
        NotMeasured: two arms of the current path differ too much, or the interval of a path contains its limit.
    """
    with trial.subject_fault():
        batch = trial.subject.batch()
    _compare(trial, batch)
    parameters = trial.parameters
    if not parameters["rounds"]:
        return
    with trial.subject_fault():
        arms = {path: _arm(trial.subject, path.removesuffix(" again"), batch) for path in (*_PATHS, _AGAIN)}
        timing = interleave(
            arms, rounds=parameters["rounds"], warmup=_WARMUP, seed=trial.seed, synchronize=torch.cuda.synchronize
        )
    (trial.artifacts / "timing.json").write_text(json.dumps(timing.as_json()))
    noise = timing.ratio("current", _AGAIN)
    trial.measure(
        seconds_current=timing.seconds["current"],
        seconds_again=timing.seconds[_AGAIN],
        noise_low=noise.low,
        noise_high=noise.high,
    )
    if max(1 / noise.low, noise.high) > parameters["noise_limit"]:
        raise NotMeasured(
            f"this machine is too busy to time steps: two arms of the current path differ by a factor between "
            f"{noise.low:.3f} and {noise.high:.3f}, and {parameters['noise_limit']} is the most that is allowed"
        )
    undecided = []
    for path in _PATHS[1:]:
        slower = timing.ratio(path, "current", again=_AGAIN)
        trial.measure(**{f"seconds_{path}": timing.seconds[path]})
        gain = parameters.get(f"{path}_gain")
        if gain and not slower.settles(1 / gain):
            undecided.append(f"the {path} path takes {slower.low:.3f} to {slower.high:.3f} of the current one's time")
        else:
            trial.measure(**{f"{path}_low": 1 / slower.high, f"{path}_high": 1 / slower.low})
    if undecided:
        raise NotMeasured(f"this machine cannot decide: {', and '.join(undecided)}")


def _arm(subject: Paths, path: str, batch: Batch) -> Callable[[], object]:
    model = subject.model(path)

    def step() -> None:
        subject.forward(model, batch).backward()
        model.zero_grad()  # so that one arm at a time has gradients

    return partial(step)


def _compare(trial: Trial[Paths], batch: Batch) -> None:
    """Measure the distance of each path's loss and gradients from the current path's."""
    errors: list[tuple[float, dict[str, Tensor]]] = []
    for path in _PATHS:
        with trial.subject_fault():
            model = trial.subject.model(path)
            loss = trial.subject.forward(model, batch)
            loss.backward()
        read_back(trial, model)
        gradients = {
            name: parameter.grad.detach() for name, parameter in model.named_parameters() if parameter.grad is not None
        }
        errors.append((float(loss.detach()), gradients))
    (right, rights), *others = errors
    trial.measure(
        loss=right,
        loss_differences=[abs(loss - right) / right for loss, _ in others],
        gradient_differences=[_difference(gradients, rights) for _, gradients in others],
        gradients=[len(gradients) for _, gradients in errors],
    )


def _difference(gradients: dict[str, Tensor], rights: dict[str, Tensor]) -> float:
    """Return the largest distance of a gradient from the expected one, relative to the expected one's norm."""
    pairs = [(gradient.float(), rights[name].float()) for name, gradient in gradients.items() if name in rights]
    return max(float((gradient - right).norm() / right.norm()) for gradient, right in pairs)

"""F-BLACKWELL-CUBLAS-001: a block's backward by cuBLAS has the same gradients, is no slower and loads fewer kernels."""

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from falsifiers.blackwell.measuring.block_cases import block_case, block_error
from falsifiers.blackwell.measuring.gradient_errors import relative_error, worst
from falsifiers.blackwell.measuring.operation_state import OperationChecks
from falsifiers.blackwell.measuring.projection_cases import Question, cases, first_cases, question
from falsifiers.blackwell.oracle.projection import projection_gradients
from falsifiers.blackwell.oracle.qwen2 import SHAPES as TRUE_SHAPES
from falsifiers.blackwell.oracle.qwen2 import TrueBlock, TrueModel
from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.subjects.cublas import Moved, Path, TwoPaths
from falsifiers.blackwell.watching.compilations import counting_kernels
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import StateCheck

_SAMPLE = 128
_VOCABULARY = 64
_MOVED: tuple[Moved, ...] = ("nothing", "backward", "products")
_SHARED = ("old_shared", "new_shared", "new_shared_all_products")
"""The names of the measurements for `_MOVED`, without the prefix that says what is counted."""
_CUBLAS = re.compile(r"cublas|cutlass|gemm|gemv|nvjet|xmma", re.IGNORECASE)
"""Names of the kernels that cuBLAS launches on sm_75 to sm_90. Our own kernels have other names."""


def falsify(trial: Trial[TwoPaths]) -> None:
    """Measure the kernel caches, then the gradients case by case and in training, and last the time of both paths."""
    state, checks = _state_check(trial), OperationChecks(trial, lambda: trial.subject.backend("new", 0), "many_rows")
    _look_at_caches(trial)
    shape, parameters = SHAPES[trial.parameters["model"]], trial.parameters
    devices: set[str] = set()

    true_shape = TRUE_SHAPES[parameters["model"]]
    drawn = cases(true_shape, parameters["largest_tokens"], parameters["largest_size"])
    first = first_cases(true_shape, parameters["largest_tokens"])

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs = question(case, trial.device)
        with state.watched(inputs.x, inputs.weight, *inputs.gradients):
            return _compare(trial, inputs, case["dtype"], devices, is_known=case in first)

    tried = trial.search(drawn, check, examples=parameters["cases"], first=first)
    trial.measure(cases=tried)
    if tried == parameters["cases"]:
        trial.measure(violations=[*state.violations(), *checks.violations()])
    _run_blocks(trial)
    _train(trial)
    trial.resolve(device="+".join(sorted(devices)), backend=_library(trial, question(first[0], trial.device)))
    if parameters["rounds"]:
        from falsifiers.blackwell.measuring.backward_time import time_backward

        time_backward(trial, shape)


def _state_check(trial: Trial[TwoPaths]) -> StateCheck:
    """The check that a projection's backward on the new path depends on its arguments alone."""
    subject = trial.subject
    backend = cache(lambda: subject.backend("new", 0))  # made once in a process, so that what it remembers shows

    def asked(x: Tensor, weight: Tensor, above: Tensor, *, name: str, bias: bool) -> ProjectionGradients:
        return backend().project_backward(name, x, weight, above, bias=bias)

    def formulas(x: Tensor, weight: Tensor, above: Tensor, *, name: str, bias: bool) -> tuple[Tensor | None, ...]:
        return above @ weight, above.T @ x, above.sum(dim=0) if bias else None

    def arguments(draw: Draw) -> Any:
        tokens, size_in, size_out = draw.size("tokens"), draw.size("in"), draw.size("out")
        tensors = draw.tensor(tokens, size_in), draw.tensor(size_out, size_in), draw.tensor(tokens, size_out)
        return tensors, {"name": draw.choice("name", "q", "down"), "bias": draw.choice("bias", True, False)}

    more: Any = {"dtypes": ("float32", "bfloat16"), "differentiable": False, "any_layout": True}
    return StateCheck(trial, asked, formulas, arguments, **more)


def _look_at_caches(trial: Trial[TwoPaths]) -> None:
    """Count the modules of both paths, and of caches that all layers share.

    The new path goes first, because modules that it loads are still there when the old path is warmed up. The shared
    caches are measured as well, because the saving depends on whether layers share their modules.
    """
    shape, layers = SHAPES[trial.parameters["model"]], trial.parameters["layers"]
    with trial.subject_fault():
        with counting_kernels() as compiled:
            new = [int(size) for size in trial.subject.prewarm("new", shape, layers)]
        old = [int(size) for size in trial.subject.prewarm("old", shape, layers)]
        shared = [[int(size) for size in trial.subject.shared_modules(moved, shape)] for moved in _MOVED]
    caches = dict(zip(("new", "old_per_layer", *_SHARED), (new, old, *shared), strict=True))
    trial.measure(**{f"modules_{name}": len(sizes) for name, sizes in caches.items()})
    trial.measure(**{f"bytes_{name}": sum(sizes) for name, sizes in caches.items()}, kernels_made_new=compiled.kernels)


def _compare(
    trial: Trial[TwoPaths], question: Question, dtype: str, devices: set[str], *, is_known: bool
) -> dict[str, float]:
    """The errors of one case, by the contract's names.

    The backend gets two gradients, and its answers are read after the second one. This shows a second answer that is
    added to the first, or that overwrites it. Each gradient is compared relative to its own size only in known cases: a
    search for the worst case finds sums that cancel, and errors are large relative to such a sum.
    """
    right = [_truth(question.x, question.weight, gradient, bias=question.bias) for gradient in question.gradients]
    with trial.subject_fault():
        answers = [_ask(trial, "new", question, gradient) for gradient in question.gradients]
        old = _ask(trial, "old", question, question.gradients[0])
        devices.add(answers[0].weight.device.type)
    errors = [_furthest(actual, true) for actual, true in zip(answers, right, strict=True)]
    # worst returns NaN if any number is NaN; max() could drop it.
    relative = worst([error / max(_largest(true), 1e-30) for error, true in zip(errors, right, strict=True)])
    if dtype != "float32":
        biased = {"bfloat16_bias": worst(list(map(_bias, answers, right)))} if is_known else {}
        return {"bfloat16_relative": relative, **biased}
    each = {"each_relative": worst(list(map(_furthest_of_each, answers, right)))} if is_known else {}
    return {
        **each,
        "sample_against_old": _furthest(answers[0], old, first=_SAMPLE),
        "whole_against_old": _furthest(answers[0], old),
        "whole_against_float64": worst(errors),
        "whole_relative": relative,
    }


def _truth(x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool) -> ProjectionGradients:
    grad_x, grad_weight, grad_bias = projection_gradients(x, weight, gradient)
    return ProjectionGradients(grad_x, grad_weight, grad_bias if bias else None)


def _run_blocks(trial: Trial[TwoPaths]) -> None:
    """Compare outputs and gradients of a whole block on both paths with transformers' block in float64."""
    parameters = trial.parameters
    shape, true_shape, errors = SHAPES[parameters["model"]], TRUE_SHAPES[parameters["model"]], dict[str, list[float]]()
    truth, size = TrueBlock(true_shape), (3, parameters["sequence"] + 1)
    for number, (dtype, steep) in enumerate(((torch.float32, False), (torch.float32, True), (torch.bfloat16, False))):
        case = block_case(true_shape, size, 10 * trial.seed + number, trial.device, dtype, steep=steep)
        true = truth.gradients(case.x, case.weights, case.grad_output)
        for path in ("new", "old"):
            with trial.subject_fault():
                error = block_error(trial.subject.backend(path, 0), shape, case, true, refilled=number == 0)
            errors.setdefault(str(dtype).removeprefix("torch."), []).append(error)
    trial.measure(block_float32=errors["float32"], block_bfloat16=errors["bfloat16"])


def _train(trial: Trial[TwoPaths]) -> None:
    """Train equal models on both paths, and compare losses and gradients in every step, also with the oracle's."""
    parameters = trial.parameters
    shape = SHAPES[parameters["model"]]
    generator = torch.Generator().manual_seed(trial.seed)
    tokens = torch.randint(_VOCABULARY, (2, parameters["sequence"] + 1), generator=generator).to(trial.device)
    models: list[LanguageModel] = []
    with trial.subject_fault():
        for path in ("new", "old"):
            blocks = [Block(shape, trial.subject.backend(path, layer)) for layer in range(parameters["layers"])]
            models.append(LanguageModel(shape, blocks, _VOCABULARY, trial.seed, torch.device(trial.device)))
        optimizers = [torch.optim.SGD(model.parameters(), lr=parameters["learning_rate"]) for model in models]
    truth = TrueModel(TRUE_SHAPES[parameters["model"]], parameters["layers"], _VOCABULARY)
    differences: list[float] = []
    errors: list[float] = []
    losses: list[float] = []
    for step in range(parameters["training_steps"]):
        true = [truth.gradients(list(model.parameters()), tokens) for model in models]
        with trial.subject_fault():
            of_step = [_step(model, optimizer, tokens) for model, optimizer in zip(models, optimizers, strict=True)]
        (loss, new), (_, old) = of_step
        for (actual_loss, gradients), (true_loss, true_gradients) in zip(of_step, true, strict=True):
            each = [relative_error(gradient, other) for gradient, other in zip(gradients, true_gradients, strict=True)]
            errors.append(worst([abs(actual_loss - true_loss) / max(1.0, true_loss), *each]))
        del true
        differences.append(worst([_distance(weight, other) for weight, other in zip(new, old, strict=True)]))
        losses.append(loss)
        trial.step(step, loss=loss, difference=differences[-1])
    trial.measure(training_difference=differences, training_relative=errors, loss_first=losses[0], loss_last=losses[-1])


def _step(model: LanguageModel, optimizer: torch.optim.Optimizer, tokens: Tensor) -> tuple[float, list[Tensor]]:
    """One optimizer step. Returns the loss before it and the gradients of all parameters."""
    optimizer.zero_grad()
    loss = model.loss(tokens)
    loss.backward()
    gradients = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()
        for parameter in model.parameters()
    ]
    optimizer.step()
    return float(loss), gradients


def _library(trial: Trial[TwoPaths], question: Question) -> str:
    """The library whose kernels multiply the matrices of the new path, according to the profiler."""
    on_gpu = trial.device != "cpu"
    with trial.subject_fault(), profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        _ask(trial, "new", question, question.gradients[0])
        if on_gpu:
            torch.cuda.synchronize()
    names = {event.key for event in seen.key_averages()}
    if not on_gpu:
        return "platform" if names & {"aten::mm", "aten::addmm"} else "no product of torch's"
    kernels = sorted(name for name in names if not name.startswith(("cuda", "cu", "Mem", "Activity", "Lazy")))
    if any(_CUBLAS.search(name) for name in names):
        return "cublas" if trial.parameters["backend"] == "cublas" else "platform"
    return ", ".join(kernels)[:200] or "no kernel"


def _ask(trial: Trial[TwoPaths], path: Path, question: Question, gradient: Tensor) -> ProjectionGradients:
    backend = trial.subject.backend(path, 0)
    return backend.project_backward(question.projection, question.x, question.weight, gradient, bias=question.bias)


def _furthest(actual: ProjectionGradients, right: ProjectionGradients, first: int | None = None) -> float:
    """The largest difference of any element, within the first `first` elements of each gradient.

    Infinite if a gradient is missing.
    """
    distances = []
    for actual_gradient, true_gradient in zip(actual, right, strict=True):
        if actual_gradient is None or true_gradient is None:
            distances.append(0.0 if actual_gradient is true_gradient else math.inf)
        else:
            distances.append(_distance(actual_gradient, true_gradient, first))
    return worst(distances)


def _furthest_of_each(actual: ProjectionGradients, right: ProjectionGradients) -> float:
    """The largest difference in any gradient, relative to the largest element of that gradient."""
    return _worst_of_each(actual, right, lambda grad, true: _distance(grad, true) / max(float(true.abs().max()), 1e-30))


def _bias(actual: ProjectionGradients, right: ProjectionGradients) -> float:
    """The largest relative error in length of any gradient along the true one. Rounding to nearest keeps it near 0."""
    return _worst_of_each(actual, right, lambda grad, true: abs(_along(grad.double(), true) - 1.0))


def _worst_of_each(
    actual: ProjectionGradients, right: ProjectionGradients, measure: Callable[[Tensor, Tensor], float]
) -> float:
    """The largest `measure` of any expected gradient; infinite if it is missing or has another shape."""
    pairs = [(gradient, true) for gradient, true in zip(actual, right, strict=True) if true is not None]
    return worst(
        [
            math.inf if gradient is None or gradient.shape != true.shape else measure(gradient, true)
            for gradient, true in pairs
        ]
    )


def _along(actual: Tensor, other: Tensor) -> float:
    return float((actual * other).sum() / (other * other).sum())


def _distance(actual: Tensor, other: Tensor, first: int | None = None) -> float:
    if actual.shape != other.shape:
        return math.inf
    return float((actual.double() - other.double()).flatten()[:first].abs().max())


def _largest(gradients: ProjectionGradients) -> float:
    return max(float(gradient.abs().max()) for gradient in gradients if gradient is not None)

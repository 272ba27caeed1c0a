"""F-BLACKWELL-WGPU-FALLBACK-001: a backward without CUDA memory, and no other, continues in WGSL.

The falsifier gives the subject a CUDA backend that fails on demand. transformers in float64 computes the expected
gradients. Launches are counted inside wgpu, not reported by the subject.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from falsifiers.blackwell.faults.backward import (
    MEMORY_FAULTS,
    OTHER_ERRORS,
    FaultyBackend,
    Raiser,
    really_out_of_memory,
)
from falsifiers.blackwell.measuring.block_cases import block_case
from falsifiers.blackwell.measuring.gradient_errors import largest_error, largest_relative_error, worst
from falsifiers.blackwell.measuring.operation_state import OperationChecks
from falsifiers.blackwell.measuring.wgsl_alone import errors_in_wgsl
from falsifiers.blackwell.oracle.qwen2 import SHAPES as TRUE_SHAPES
from falsifiers.blackwell.oracle.qwen2 import TrueBlock, TrueModel
from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from falsifiers.blackwell.subjects.wgpu_fallback import FallbackBlocks
from falsifiers.blackwell.watching.fallback import Witness
from harness import Trial

_LEARNING_RATE = 0.05
_MOST_PLACES = 64


@dataclass
class _Findings:
    """Measurements over all parts; `kinds` has the (device, dtype) of every gradient."""

    kinds: set[tuple[str, str]] = field(default_factory=set)
    block_errors: list[float] = field(default_factory=list)
    wgsl_errors: list[float] = field(default_factory=list)
    step_errors: list[float] = field(default_factory=list)
    step_errors_relative: list[float] = field(default_factory=list)
    launches_by_fault: list[float] = field(default_factory=list)
    launches_without_fault: list[int] = field(default_factory=list)
    primary_calls_after_fault: list[int] = field(default_factory=list)
    primary_calls_missing: list[int] = field(default_factory=list)
    torch_products_after_fault: list[int] = field(default_factory=list)
    warnings_too_many: list[int] = field(default_factory=list)
    layers_unnamed: list[int] = field(default_factory=list)
    held_after_fault: list[int] = field(default_factory=list)
    kept_on_wgpu: list[float] = field(default_factory=list)
    changed_errors: list[str] = field(default_factory=list)
    work_after_other_errors: list[int] = field(default_factory=list)


def falsify(trial: Trial[FallbackBlocks]) -> None:
    """Fail one block's backward at many places, then layers of a model in training; then inject other errors."""
    witness, seen, checks = Witness(), _Findings(), OperationChecks(trial, trial.subject.fallback)
    with witness.watching():
        operations = _one_block(trial, witness, seen)
        _training(trial, witness, seen, operations)
        _other_errors(trial, witness, seen, operations)
    seen.wgsl_errors = errors_in_wgsl(trial)  # not watched: launches that the falsifier asks for show no fallback
    vulkan = {info["backend_type"] for info in witness.adapters.values()} == {"Vulkan"}
    measured = {name: values for name, values in vars(seen).items() if name != "kinds"}
    trial.measure(violations=checks.violations())
    trial.measure(**measured, adapters=sorted(witness.adapters), wrong_adapters=_wrong_adapters(trial, witness))
    trial.resolve(backend="wgpu" if vulkan else "none")


def _wrong_adapters(trial: Trial[FallbackBlocks], witness: Witness) -> list[str]:
    """Adapters that had launches and are not of the requested kind. A software adapter is not a GPU."""
    requested = trial.parameters["adapter"]
    return [
        f"{name} ({info['adapter_type']})"
        for name, info in sorted(witness.adapters.items())
        if info["backend_type"] != "Vulkan" or (requested == "gpu" and info["adapter_type"] == "CPU")
    ]


def _healthy(trial: Trial[FallbackBlocks]) -> Backend:
    return CublasBackend() if trial.device.startswith("cuda") else TorchBackend()


def _one_block(trial: Trial[FallbackBlocks], witness: Witness, seen: _Findings) -> int:
    """Inject every memory fault at places all over one block's backward.

    Incoming gradients have standard deviation 1, so that an error of 1e-4 is a rounding error. Two faults in a batch of
    shorter sequences come first; after them the weights change in place, as an optimizer changes them. This shows
    uploads that are kept and reused. Every backward has a gradient of another length, so that a result that is kept
    and reused shows. After each fault the backward runs once more without a fault, on CUDA.

    Returns:
        The number of operations of the primary backend in a backward without fault.
    """
    parameters = trial.parameters
    faulty = FaultyBackend(_healthy(trial), witness)
    with trial.subject_fault():
        block = trial.subject.block(parameters["layers"], faulty)
    shorter = (parameters["batch"] + 1, max(2, parameters["sequence"] // 4 - 1))
    truth = TrueBlock(TRUE_SHAPES[parameters["model"]])
    weights = _weights(trial)
    operations = injected = 0
    for size, count in ((shorter, 2), ((parameters["batch"], parameters["sequence"]), parameters["places"])):
        for weight in weights.values():
            weight.copy_(weight.flip(0))
        case = drawn = _case(trial, truth, weights, size)
        with torch.no_grad(), trial.subject_fault():
            output, saved = block.forward(case.x, case.weights)
        seen.block_errors.append(largest_error({"output": output}, {"output": case.output}))
        operations = _without_fault(trial, witness, seen, block, saved, case, faulty, operations)
        live = []
        for number, place in enumerate(_spread(operations, count)):
            case = drawn.times(1.0 - number / _MOST_PLACES)
            witness.clear()
            faulty.fail(_faults(trial)[(number + trial.seed) % len(_faults(trial))], place)
            with torch.no_grad(), trial.subject_fault(), witness.products_counted():
                actual = _all(*block.backward(saved, case.weights, case.gradient))
            faulty.relent()
            _compare(trial, seen, actual, case)
            seen.launches_by_fault.append(faulty.launches)
            seen.primary_calls_after_fault.append(witness.primary_calls)
            seen.torch_products_after_fault.append(witness.products)
            seen.warnings_too_many.append(witness.warnings - (injected == 0))
            injected += 1
            if faulty.held_then is not None:
                seen.held_after_fault.append(faulty.held_then)
            live.append(witness.live_bytes())
            uploaded = witness.uploaded_bytes
            _without_fault(trial, witness, seen, block, saved, case, faulty, operations)
        if len(live) > 1:
            seen.kept_on_wgpu.append(max(0, live[-1] - live[0]) / (len(live) - 1) / max(1, uploaded))
    return operations


def _weights(trial: Trial[FallbackBlocks]) -> dict[str, Tensor]:
    return block_case(TRUE_SHAPES[trial.parameters["model"]], (1, 1), trial.seed, trial.device).weights


@dataclass(frozen=True)
class _Case:
    """The inputs of one block, and its true output and gradients."""

    weights: dict[str, Tensor]
    x: Tensor
    gradient: Tensor
    output: Tensor
    expected: dict[str, Tensor]

    def times(self, factor: float) -> _Case:
        """The same with another length of the gradient, and so of all expected gradients."""
        expected = {name: factor * gradient for name, gradient in self.expected.items()}
        return replace(self, gradient=factor * self.gradient, expected=expected)


def _case(trial: Trial[FallbackBlocks], truth: TrueBlock, weights: dict[str, Tensor], size: tuple[int, int]) -> _Case:
    """Standard normal inputs from the seed, for `size` = (sequences, tokens)."""
    drawn = block_case(truth.shape, size, trial.seed + 1, trial.device)
    expected = truth.gradients(drawn.x, weights, drawn.grad_output)
    return _Case(weights, drawn.x, drawn.grad_output, expected.pop("output"), expected)


def _faults(trial: Trial[FallbackBlocks]) -> tuple[Raiser, ...]:
    return MEMORY_FAULTS if trial.device == "cpu" else (*MEMORY_FAULTS, really_out_of_memory)


def _without_fault(
    trial: Trial[FallbackBlocks],
    witness: Witness,
    seen: _Findings,
    block: Block,
    saved: Saved,
    case: _Case,
    faulty: FaultyBackend,
    usual: int,
) -> int:
    """Run a backward without fault, which CUDA must do alone.

    Returns:
        The expected number of operations: `usual`, or the number seen if `usual` is 0.
    """
    witness.clear()
    before = faulty.calls
    with torch.no_grad(), trial.subject_fault():
        actual = _all(*block.backward(saved, case.weights, case.gradient))
    operations = faulty.calls - before
    _compare(trial, seen, actual, case)
    seen.launches_without_fault.append(witness.launches)
    usual = usual or max(1, operations)  # at least one place to fail at, even if the backward never called CUDA
    seen.primary_calls_missing.append(max(0, usual - operations))
    return usual


def _compare(trial: Trial[FallbackBlocks], seen: _Findings, actual: dict[str, Tensor], case: _Case) -> None:
    """Record the error, and the device and dtype of every gradient."""
    seen.kinds |= {(gradient.device.type, str(gradient.dtype).removeprefix("torch.")) for gradient in actual.values()}
    devices, dtypes = ("+".join(sorted(set(names))) for names in zip(*seen.kinds, strict=True))
    trial.resolve(device=devices, dtype=dtypes)
    seen.block_errors.append(largest_error(actual, case.expected))


def _training(trial: Trial[FallbackBlocks], witness: Witness, seen: _Findings, operations: int) -> None:
    """Train a language model with faults in some layers, with two micro-batches a step that add their gradients.

    The number of calls that the primary backend should get is known: a fault costs it the operations of that backward
    from its place on.
    """
    parameters = trial.parameters
    shape, layers = SHAPES[parameters["model"]], parameters["layers"]
    faulty = [FaultyBackend(_healthy(trial), witness) for _ in range(layers)]
    device = torch.device(trial.device)
    with trial.subject_fault():
        blocks = [trial.subject.block(layer, backend) for layer, backend in enumerate(faulty)]
    model = LanguageModel(shape, blocks, parameters["vocabulary"], trial.seed, device)
    truth = TrueModel(TRUE_SHAPES[parameters["model"]], layers, parameters["vocabulary"])
    affected: set[int] = set()
    usual: list[int] | None = None
    tokens_size = (2, parameters["batch"], parameters["sequence"] + 1)
    for step, failing in enumerate(_schedule(trial), start=1):
        generator = torch.Generator().manual_seed(trial.seed * 100 + step)
        tokens = torch.randint(parameters["vocabulary"], tokens_size, generator=generator).to(device)
        places = random.Random(f"{trial.seed} {step}")  # noqa: S311 (places, no secrets)
        witness.clear()
        before = [backend.calls for backend in faulty]
        spared = [0] * layers
        losses = []
        weights = dict(model.named_parameters())
        expected: list[Tensor] = []
        loss_errors = []
        for micro_batch, failing_now in zip(tokens, failing, strict=True):
            right, of_batch = truth.gradients(list(weights.values()), micro_batch)
            expected = (
                [gradient + other for gradient, other in zip(expected, of_batch, strict=True)] if expected else of_batch
            )
            with trial.subject_fault():
                loss = model.loss(micro_batch)
                for layer in sorted(failing_now):
                    place = places.randrange(operations)
                    spared[layer] += operations - place
                    faulty[layer].fail(places.choice(MEMORY_FAULTS), place)
                loss.backward()
            for backend in faulty:
                backend.relent()
            seen.launches_by_fault += [faulty[layer].launches for layer in sorted(failing_now)]
            losses.append(loss.item())
            loss_errors.append(abs(losses[-1] - right) / max(1.0, right))
        errors = _gradients(model), dict(zip(weights, expected, strict=True))
        calls = [backend.calls - count for backend, count in zip(faulty, before, strict=True)]
        usual = usual or calls
        expected_calls = [most - fewer for most, fewer in zip(usual, spared, strict=True)]
        news = set.union(*failing) - affected
        seen.step_errors.append(largest_error(*errors))
        seen.step_errors_relative.append(worst([largest_relative_error(*errors), *loss_errors]))
        seen.warnings_too_many.append(witness.warnings - len(news))
        seen.layers_unnamed.append(len(news - witness.layers_named))
        seen.primary_calls_after_fault.append(_excess(calls, expected_calls))
        seen.primary_calls_missing.append(_excess(expected_calls, calls))
        if not any(failing):
            seen.launches_without_fault.append(witness.launches)
        affected |= news
        trial.step(
            step,
            loss=sum(losses) / len(losses),
            gradient_error=seen.step_errors[-1],
            relative_error=seen.step_errors_relative[-1],
            launches=witness.launches,
        )
        _descend(model)


def _other_errors(trial: Trial[FallbackBlocks], witness: Witness, seen: _Findings, operations: int) -> None:
    """Check that an error other than out-of-memory reaches the caller, without a launch on wgpu or a warning.

    The errors are injected into a layer before its first memory fault and again after one. Afterwards the layer must
    work as before.
    """
    parameters = trial.parameters
    truth = TrueBlock(TRUE_SHAPES[parameters["model"]])
    case = _case(trial, truth, _weights(trial), (parameters["batch"], parameters["sequence"]))
    faulty = FaultyBackend(_healthy(trial), witness)
    with torch.no_grad(), trial.subject_fault():
        block = trial.subject.block(parameters["layers"] + 1, faulty)
        _, saved = block.forward(case.x, case.weights)
    places = random.Random(trial.seed)  # noqa: S311 (places, no secrets)
    for told_before in (False, True):
        for error in OTHER_ERRORS:
            witness.clear()
            faulty.fail(lambda tensor, error=error: error, places.randrange(operations))  # type: ignore[misc]
            caught = None
            with torch.no_grad(), trial.subject_fault():
                try:
                    block.backward(saved, case.weights, case.gradient)
                except BaseException as raised:  # KeyboardInterrupt must reach the caller too
                    caught = raised
            faulty.relent()
            if caught is not error:
                came = "nothing was raised" if caught is None else f"another {type(caught).__name__} was raised"
                seen.changed_errors.append(f"{type(error).__name__} ({error}): {came}")
            seen.work_after_other_errors.append(witness.launches + witness.warnings + witness.primary_calls)
            error.__traceback__ = None  # the traceback keeps the tensors of the backward alive
        _without_fault(trial, witness, seen, block, saved, case, faulty, operations)
        witness.clear()
        faulty.fail(MEMORY_FAULTS[0], places.randrange(operations))
        with torch.no_grad(), trial.subject_fault():
            actual = _all(*block.backward(saved, case.weights, case.gradient))
        faulty.relent()
        _compare(trial, seen, actual, case)
        seen.launches_by_fault.append(faulty.launches)
        seen.warnings_too_many.append(witness.warnings - (not told_before))


def _spread(count: int, places: int) -> list[int]:
    """Up to `places` different numbers below `count`, including the first and the last."""
    return sorted({round(number * (count - 1) / max(1, places - 1)) for number in range(places)})


def _schedule(trial: Trial[FallbackBlocks]) -> list[tuple[set[int], set[int]]]:
    """The layers that fail in each step, by micro-batch: none, one, all but the first, all, none, one twice, none."""
    layers = trial.parameters["layers"]
    every = set(range(layers))
    one, none = {trial.seed % layers}, set[int]()
    first = [none, one, every - {0}, every, none, one, none]
    return [(failing, one if step == 5 else none) for step, failing in enumerate(first)]


def _all(grad_x: Tensor, of_weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"x": grad_x, **of_weights}


def _gradients(model: LanguageModel) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _excess(counts: list[int], usual: list[int]) -> int:
    return sum(max(0, count - most) for count, most in zip(counts, usual, strict=True))


def _descend(model: LanguageModel) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight -= _LEARNING_RATE * weight.grad
                weight.grad = None

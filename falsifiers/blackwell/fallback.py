"""F-BLACKWELL-WGPU-FALLBACK-001: a backward without memory goes on in WGSL, once, and nothing else does.

The falsifier hands the subject the backend that computes on CUDA, healthy until it is told to fail; a second one that
never fails says what the gradients should be. Who launched what is counted inside wgpu, not asked of the subject.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from falsifiers.blackwell.fallback_faults import (
    MEMORY_FAULTS,
    OTHER_ERRORS,
    FaultyBackend,
    Witness,
    really_out_of_memory,
)
from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved, new_weights
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from harness import Trial

__all__ = ["Subject", "falsify"]

_LEARNING_RATE = 0.05


class Subject(Protocol):
    """Something that makes layers which survive an out-of-memory, built as `Subject(setting)`."""

    def block(self, layer: int, primary: Backend) -> Block:
        """Layer `layer`, counted from 0: forward and backward by `primary`, and its backward by wgpu if that fails."""
        ...


@dataclass
class _Findings:
    """What was measured, over all parts."""

    block_errors: list[float] = field(default_factory=list)
    step_errors: list[float] = field(default_factory=list)
    launches_by_fault: list[float] = field(default_factory=list)
    launches_without_fault: list[int] = field(default_factory=list)
    primary_calls_after_fault: list[int] = field(default_factory=list)
    primary_calls_missing: list[int] = field(default_factory=list)
    torch_products_after_fault: list[int] = field(default_factory=list)
    warnings_too_many: list[int] = field(default_factory=list)
    layers_unnamed: list[int] = field(default_factory=list)
    held_after_fault: list[int] = field(default_factory=list)
    changed_errors: list[str] = field(default_factory=list)
    work_after_other_errors: list[int] = field(default_factory=list)


def falsify(trial: Trial[Subject]) -> None:
    """Fail one block's backward at many places, then layers of a model that trains, then with errors of other kinds."""
    witness, seen = Witness(), _Findings()
    with witness.watching():
        _one_block(trial, witness, seen)
        _training(trial, witness, seen)
        _other_errors(trial, witness, seen)
    vulkan = {info["backend_type"] for info in witness.adapters.values()} == {"Vulkan"}
    trial.measure(**vars(seen), adapters=sorted(witness.adapters), wrong_adapters=_wrong_adapters(trial, witness))
    trial.resolve(backend="wgpu" if vulkan else "none")


def _wrong_adapters(trial: Trial[Subject], witness: Witness) -> list[str]:
    """Adapters that were given work and are not of the kind that was asked for: software is no GPU."""
    wanted = trial.parameters["adapter"]
    return [
        f"{name} ({info['adapter_type']})"
        for name, info in sorted(witness.adapters.items())
        if info["backend_type"] != "Vulkan" or (wanted == "gpu" and info["adapter_type"] == "CPU")
    ]


def _healthy(trial: Trial[Subject]) -> Backend:
    return CublasBackend() if trial.device.startswith("cuda") else TorchBackend()


def _drawn(trial: Trial[Subject], size: tuple[int, ...], salt: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * trial.seed + salt)
    return torch.randn(size, generator=generator).to(trial.device)


def _one_block(trial: Trial[Subject], witness: Witness, seen: _Findings) -> None:
    """Every fault of memory, at places all over the backward: what was done before it must not count.

    Gradients of standard deviation 1 come from above, so that an error of 1e-4 is one of rounding and none of scale.
    """
    shape, x, weights, gradient, faulty = _a_layer(trial, witness)
    with torch.no_grad():
        reference = Block(shape, _healthy(trial))
        expected = _all(*reference.backward(reference.forward(x, weights)[1], weights, gradient))
        with trial.subject_fault():
            block = trial.subject.block(0, faulty)
            _, saved = block.forward(x, weights)
            operations = _operations(block, saved, weights, gradient, faulty)
        faults = MEMORY_FAULTS if trial.device == "cpu" else (*MEMORY_FAULTS, really_out_of_memory)
        places = _spread(operations, trial.parameters["places"])
        for number, place in enumerate(places):
            witness.clear()
            faulty.fail(faults[(number + trial.seed) % len(faults)], place)
            with trial.subject_fault(), witness.products_counted():
                found = _all(*block.backward(saved, weights, gradient))
            faulty.relent()
            seen.block_errors.append(_largest_error(found, expected))
            seen.launches_by_fault.append(witness.launches)
            seen.primary_calls_after_fault.append(witness.primary_calls)
            seen.torch_products_after_fault.append(witness.products)
            seen.warnings_too_many.append(witness.warnings - (number == 0))
            if witness.held is not None:
                seen.held_after_fault.append(witness.held)
            trial.resolve(device=found["x"].device.type, dtype=str(found["x"].dtype).removeprefix("torch."))


def _training(trial: Trial[Subject], witness: Witness, seen: _Findings) -> None:
    """Steps of a language model with and without faults, in each of two micro-batches that add their gradients up.

    A model on healthy backends takes the same steps; both descend by what they found themselves.
    """
    parameters = trial.parameters
    shape, layers = SHAPES[parameters["model"]], parameters["layers"]
    faulty = [FaultyBackend(_healthy(trial), witness) for _ in range(layers)]
    device = torch.device(trial.device)
    reference = LanguageModel(
        shape, [Block(shape, _healthy(trial))] * layers, parameters["vocabulary"], trial.seed, device
    )
    with trial.subject_fault():
        blocks = [trial.subject.block(layer, backend) for layer, backend in enumerate(faulty)]
    model = LanguageModel(shape, blocks, parameters["vocabulary"], trial.seed, device)
    model.load_state_dict(copy.deepcopy(reference.state_dict()))
    affected: set[int] = set()
    calls_of_a_step: list[int] | None = None
    tokens_size = (2, parameters["batch"], parameters["sequence"] + 1)
    for step, failing in enumerate(_schedule(trial), start=1):
        generator = torch.Generator().manual_seed(trial.seed * 100 + step)
        tokens = torch.randint(parameters["vocabulary"], tokens_size, generator=generator).to(device)
        witness.clear()
        calls = [-backend.calls for backend in faulty]
        losses = []
        for number, micro_batch in enumerate(tokens):
            reference.loss(micro_batch).backward()
            with trial.subject_fault():
                loss = model.loss(micro_batch)
                if number == 0:
                    for layer in failing:
                        places = random.Random(f"{trial.seed} {step} {layer}")  # noqa: S311 (places, no secrets)
                        faulty[layer].fail(places.choice(MEMORY_FAULTS), places.randrange(20))
                loss.backward()
            for backend in faulty:
                backend.relent()
            losses.append(loss.item())
        error = _largest_error(_gradients(model), _gradients(reference))
        calls = [count + backend.calls for count, backend in zip(calls, faulty, strict=True)]
        seen.step_errors.append(error)
        seen.warnings_too_many.append(witness.warnings - len(failing - affected))
        seen.layers_unnamed.append(len(failing - affected - witness.layers_named))
        seen.primary_calls_after_fault.append(0 if calls_of_a_step is None else _excess(calls, calls_of_a_step))
        if failing:
            seen.launches_by_fault.append(witness.launches / len(failing))
        else:
            seen.launches_without_fault.append(witness.launches)
            calls_of_a_step = calls_of_a_step or calls
            seen.primary_calls_missing.append(_excess(calls_of_a_step, calls))
        affected |= failing
        trial.step(step, loss=sum(losses) / len(losses), gradient_error=error, launches=witness.launches)
        _descend(model)
        _descend(reference)


def _other_errors(trial: Trial[Subject], witness: Witness, seen: _Findings) -> None:
    """An error that is no lack of memory comes out itself, and neither wgpu nor the log hears of it."""
    _, x, weights, gradient, faulty = _a_layer(trial, witness)
    with torch.no_grad():
        with trial.subject_fault():
            block = trial.subject.block(0, faulty)
            _, saved = block.forward(x, weights)
        places = random.Random(trial.seed)  # noqa: S311 (places, no secrets)
        for error in OTHER_ERRORS:
            witness.clear()
            faulty.fail(lambda tensor, error=error: error, places.randrange(20))  # type: ignore[misc]
            caught = None
            with trial.subject_fault():
                try:
                    block.backward(saved, weights, gradient)
                except BaseException as raised:  # KeyboardInterrupt is among what must come out
                    caught = raised
            faulty.relent()
            if caught is not error:
                came = "nothing" if caught is None else f"another {type(caught).__name__}"
                seen.changed_errors.append(f"{type(error).__name__} ({error}): {came}")
            seen.work_after_other_errors.append(witness.launches + witness.warnings + witness.primary_calls)


def _a_layer(
    trial: Trial[Subject], witness: Witness
) -> tuple[object, Tensor, dict[str, Tensor], Tensor, FaultyBackend]:
    shape = SHAPES[trial.parameters["model"]]
    size = (trial.parameters["batch"], trial.parameters["sequence"], shape.hidden)
    weights = new_weights(shape, trial.seed, dtype=torch.float32, device=trial.device)
    return shape, _drawn(trial, size, 1), weights, _drawn(trial, size, 2), FaultyBackend(_healthy(trial), witness)


def _operations(
    block: Block, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor, faulty: FaultyBackend
) -> int:
    """How many operations of the primary backend a backward without fault has."""
    before = faulty.calls
    block.backward(saved, weights, gradient)
    return faulty.calls - before


def _spread(count: int, places: int) -> list[int]:
    """So many different places among `count`, the first and the last included."""
    return sorted({round(number * (count - 1) / max(1, places - 1)) for number in range(places)})


def _schedule(trial: Trial[Subject]) -> Iterator[set[int]]:
    """The layers that fail in each step: none, one, all but the first, all, none, and one once more, none."""
    layers = trial.parameters["layers"]
    every = set(range(layers))
    one = trial.seed % layers
    return iter([set(), {one}, every - {0}, every, set(), {one}, set()])


def _all(of_x: Tensor, of_weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {"x": of_x, **of_weights}


def _gradients(model: LanguageModel) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def _largest_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest absolute difference of any element; infinite where a gradient is missing or has another shape."""
    if found.keys() != expected.keys() or any(found[name].shape != expected[name].shape for name in expected):
        return float("inf")
    differences = [(found[name].double() - expected[name].double()).abs().max() for name in expected]
    return float(torch.stack(differences).max())  # a NaN among them is the largest


def _excess(counts: list[int], usual: list[int]) -> int:
    return sum(max(0, count - most) for count, most in zip(counts, usual, strict=True))


def _descend(model: LanguageModel) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight -= _LEARNING_RATE * weight.grad
                weight.grad = None

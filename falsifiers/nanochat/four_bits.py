"""F-GB10-NVFP4-QUANT-001: NVFP4's recipe rounds as defined, and training with it converges.

The products run in float32 on numbers that NVFP4 can represent. That emulates Blackwell's tensor cores.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.nanochat.device_subjects import Quantiser
from falsifiers.nanochat.oracle import nvfp4
from harness import Trial


def falsify(trial: Trial[Quantiser]) -> None:
    """Compare numbers and gradients with the definition, and train with and without the recipe."""

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs, weight, grad_output = _tensors(case, trial.device)
        with trial.subject_fault():
            kept = trial.subject.quantised(inputs)
            leaves = inputs.clone().requires_grad_(), weight.clone().requires_grad_()
            output = trial.subject.linear(*leaves)
            output.backward(grad_output)
        right = nvfp4.kept(inputs.cpu())
        return {
            "number_errors": _number_error(kept, right),
            "product_errors": _error(output, nvfp4.product(inputs.cpu(), weight.cpu())),
            "input_gradient_errors": _error(leaves[0].grad, nvfp4.input_gradient(grad_output.cpu(), weight.cpu())),
            "weight_gradient_errors": _error(leaves[1].grad, nvfp4.weight_gradient(grad_output.cpu(), inputs.cpu())),
        }

    drawn = st.fixed_dictionaries({
        "rows": st.sampled_from([16, 32, 48]), "columns": st.sampled_from([32, 64, 96]),
        "out": st.sampled_from([32, 64]), "seed": st.integers(0, 2**31), "exponent": st.integers(-24, 24),
        "spread": st.sampled_from([0.0, 1.0, 3.0]), "zeros": st.booleans(), "halves": st.booleans(),
    })  # fmt: skip
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=_known(trial.seed)))

    def quantised(inputs: Tensor, weight: Tensor) -> Tensor:
        with trial.subject_fault():
            return trial.subject.linear(inputs, weight)

    steps = trial.parameters["steps"]
    plain, _ = _trained(trial, steps, lambda inputs, weight: inputs @ weight.T)
    losses, device = _trained(trial, steps, quantised)
    for number, loss in enumerate(losses):
        trial.step(number, loss=loss)
    trial.measure(
        losses=losses, left=losses[-1] / losses[0], left_plain=plain[-1] / plain[0],
        behind=(losses[-1] - plain[-1]) / losses[0],
    )  # fmt: skip
    trial.resolve(device=device, steps=len(losses))


def _known(seed: int) -> list[dict[str, Any]]:
    """Return numbers halfway between two NVFP4 numbers, blocks that round to zeros, and more rows than 1,024."""
    plain = {"rows": 16, "columns": 64, "out": 32, "seed": seed, "exponent": 0, "spread": 3.0, "zeros": False}
    return [
        {**plain, "halves": True},
        {**plain, "spread": 6.0, "halves": False},
        {**plain, "rows": 1040, "columns": 32, "spread": 0.0, "halves": False},
    ]


def _tensors(case: Mapping[str, Any], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, weight and the gradient of the output. Columns differ in size by powers of e, as outliers do."""
    generator = torch.Generator().manual_seed(case["seed"])

    def drawn(rows: int, columns: int) -> Tensor:
        sizes = torch.exp(case["spread"] * torch.randn(columns, generator=generator))
        return torch.randn(rows, columns, generator=generator) * sizes * 2.0 ** case["exponent"]

    inputs, weight = drawn(case["rows"], case["columns"]), drawn(case["out"], case["columns"])
    if case["halves"]:
        inputs, weight = (_halves(tensor, generator) * 2.0 ** case["exponent"] for tensor in (inputs, weight))
    inputs[-1] *= 4.0  # so that the last row has the largest number
    if case["zeros"]:
        inputs[0], inputs[:, :32] = 0.0, 0.0
    grad_output = torch.randn(case["rows"], case["out"], generator=generator)
    return inputs.to(device), weight.to(device), grad_output.to(device)


def _halves(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return multiples of 1/4 up to 6, times a power of two per 16: many lie halfway between two numbers of E2M1."""
    quarters = torch.randint(-24, 25, like.shape, generator=generator) / 4.0
    quarters[:, ::16] = 6.0
    powers = 2.0 ** torch.randint(0, 7, (len(like), like.shape[1] // 16, 1), generator=generator)
    values = (quarters.unflatten(-1, (-1, 16)) * powers).flatten(-2)
    values[-1, -1] = 6.0 * 112.0  # the largest, also of a row four times as large: the scale of all is a power of two
    return values


def _number_error(actual: Tensor, right: Tensor) -> float:
    """Return the largest difference relative to the largest expected number of its block; infinite if all are 0."""
    if actual.shape != right.shape:
        return float("inf")
    blocks, expected = (tensor.detach().double().cpu().unflatten(-1, (-1, 16)) for tensor in (actual, right))
    far, size = (blocks - expected).abs().amax(-1), expected.abs().amax(-1)
    return float(torch.where(far > 0, far / size, far).max())


def _error(actual: Tensor | None, right: Tensor) -> float:
    """Return the largest difference relative to the largest expected number."""
    if actual is None or actual.shape != right.shape:
        return float("inf")
    largest = float(right.abs().max()) or 1.0
    return float((actual.detach().double().cpu() - right).abs().max()) / largest


def _trained(
    trial: Trial[Quantiser], steps: int, linear: Callable[[Tensor, Tensor], Tensor]
) -> tuple[list[float], str]:
    """Train a student of two layers to follow a teacher, and return its losses and their device."""
    parameters = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)

    def drawn(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=generator) / columns**0.5).to(trial.device)

    width, rows = parameters["width"], parameters["rows"]
    teacher, student = ([drawn(4 * width, width), drawn(width, 4 * width)] for _ in range(2))
    inputs = drawn(rows, width) * width**0.5
    targets = torch.relu(inputs @ teacher[0].T).square() @ teacher[1].T
    weights = [weight.requires_grad_() for weight in student]
    optimizer = torch.optim.Adam(weights, lr=parameters["rate"])
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        output = linear(torch.relu(linear(inputs, weights[0])).square(), weights[1])
        loss = (output - targets).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, loss.device.type

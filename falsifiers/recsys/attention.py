"""F-HSTU-FWD-001, -BWD-001 and -STRIDE-001: attention and its gradients have the values of the definition.

No bound uses the largest error of a whole tensor. The error of a row is relative to the rounding of its own terms. A
common factor of all rows is estimated by projecting the answer on the expected one, where roundings cancel.

For a case with "again", the subject first gets another batch of the same layout, because it may cache what it prepared
for that layout. The second call runs in a thread that has not used the device yet.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.attention_cases import LAYOUTS, cases, earlier, first_cases, question
from falsifiers.recsys.attention_state import state_check
from falsifiers.recsys.oracle.hstu import Part, in_low_precision, product_along, truth
from falsifiers.recsys.subject import Answer, Attention, Question
from harness import Trial

_MANY_ROWS = 64
"""From this many rows of all heads on, roundings cancel in a projection, and the source's rule applies."""
_STEP = 1e-3
"""The step of the central difference, in units of the inputs."""


def falsify_forward(trial: Trial[Attention]) -> None:
    """Compare outputs with float64, case by case."""
    _falsify(trial, ("out",))


def falsify_backward(trial: Trial[Attention]) -> None:
    """Compare gradients with float64, and with the change of the output along a direction."""
    _falsify(trial, ("dq", "dk", "dv"))


def falsify_layouts(trial: Trial[Attention]) -> None:
    """Compare output and gradients with float64 for equal numbers in other strides."""

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        worst: dict[str, float] = {}
        for layout in LAYOUTS:
            inputs = question({**case, "layout": layout, "heads": max(2, case["heads"])}, trial.device)
            answer = _answer(trial, inputs)
            rows = (
                _row_error(inputs, actual, part)
                for _, actual, part in _pairs(inputs, answer, ("out", "dq", "dk", "dv"))
            )
            worst[f"{layout.replace(' ', '_')}_rows"] = max(rows, key=_size)
        return worst

    _search(trial, check)


def _falsify(trial: Trial[Attention], names: tuple[str, ...]) -> None:
    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs = question(case, trial.device)
        before = earlier(case, trial.device) if case["again"] else None
        if before is not None:
            _answer(trial, before)
        answer = _answer(trial, inputs)
        errors: dict[str, float] = {}
        if before is not None:  # keep its memory, so that addresses differ
            again = _answer(trial, inputs, _by_new_thread)
            errors["unrepeatable"] = float(sum(_differ(answer, again, name) for name in names))
        rows, scales, ratios = [], [], []
        low = dict(zip(("out", "dq", "dk", "dv"), in_low_precision(inputs), strict=True))
        for name, actual, part in _pairs(inputs, answer, names):
            rows.append(_row_error(inputs, actual, part))
            if actual.shape[0] * actual.shape[1] >= _MANY_ROWS:
                scales.append(_scale_error(actual, part))
                ratios.append(_source_ratio(actual, low[name], part))
        errors[f"row_errors_{case['dtype']}"] = max(rows, key=_size)
        if scales:
            errors["scale_errors"] = max(scales, key=_size)
            errors["source_ratios"] = max(ratios, key=_size)
        if len(names) > 1:
            errors["adjoint_errors"] = _adjoint_error(inputs, answer, case["seed"])
        return errors

    _search(trial, check)


def _search(trial: Trial[Attention], check: Any) -> None:
    """Try the cases, then check that the attention depends on its arguments alone."""
    parameters, state = trial.parameters, state_check(trial)
    first = first_cases(parameters)[: parameters["cases"]]
    tried = trial.search(cases(parameters), check, examples=parameters["cases"], first=first)
    trial.measure(cases=tried)
    state.measure(tried)
    trial.resolve(device=torch.device(trial.device).type)


def _by_new_thread(subject: Attention, question: Question) -> Answer:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(subject, question).result()


def _answer(
    trial: Trial[Attention], question: Question, ask: Callable[[Attention, Question], Answer] = operator.call
) -> Answer:
    inputs = (question.q, question.k, question.v, question.grad_output)
    kept = [tensor.clone() for tensor in inputs]
    with trial.subject_fault():
        answer = ask(trial.subject, question)
        if not all(map(torch.equal, inputs, kept)):  # the expected values are computed from the inputs later
            raise ValueError("an input was changed in place")
        pairs = ((answer.out, question.v), (answer.dq, question.q), (answer.dk, question.k), (answer.dv, question.v))
        for actual, like in pairs:
            if actual.shape != like.shape or actual.dtype != like.dtype or actual.device != like.device:
                raise ValueError(
                    f"{actual.dtype} {tuple(actual.shape)} on {actual.device} is not like {tuple(like.shape)}"
                )
        return answer


def _pairs(question: Question, answer: Answer, names: tuple[str, ...]) -> Iterator[tuple[str, Tensor, Part]]:
    right = truth(question)
    for name in names:
        yield name, getattr(answer, name).double(), getattr(right, name)


def _row_error(question: Question, actual: Tensor, part: Part) -> float:
    """Return the largest error of a row, relative to one rounding of its terms."""
    if not actual.numel():
        return 0.0
    unit = torch.finfo(question.q.dtype).eps / 2.0
    return _largest((actual - part.value).norm(dim=-1) / (unit * part.noise.norm(dim=-1)))


def _scale_error(actual: Tensor, part: Part) -> float:
    """Return how far the best-fitting factor between answer and expected value is from 1."""
    return _largest(((actual - part.value) * part.value).sum() / (part.value**2).sum())


def _source_ratio(actual: Tensor, low: Tensor, part: Part) -> float:
    """Return the largest error relative to that of the definition in low precision: L/R of the source's tests."""
    return _largest((actual - part.value).abs().max() / (low.double() - part.value).abs().max())


def _adjoint_error(question: Question, answer: Answer, seed: int) -> float:
    """Return the error of gradients against a directional derivative, in roundings of the gradients' terms."""
    if not question.q.numel():
        return 0.0
    generator = torch.Generator().manual_seed(seed + 1)
    toward = [
        torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.device)
        for tensor in (question.q, question.k, question.v)
    ]
    along = product_along(question, (toward[0], toward[1], toward[2]), _STEP)
    right, unit = truth(question), torch.finfo(question.q.dtype).eps / 2.0
    given = sum(
        float((actual.double() * way).sum())
        for actual, way in zip((answer.dq, answer.dk, answer.dv), toward, strict=True)
    )
    noise = sum(
        float(((part.noise * way) ** 2).sum()) for part, way in zip((right.dq, right.dk, right.dv), toward, strict=True)
    )
    return _largest(torch.tensor((given - along) / (unit * math.sqrt(noise))))


def _differ(first: Answer, second: Answer, name: str) -> bool:
    bits = [getattr(answer, name).contiguous().view(torch.int16) for answer in (first, second)]
    return not torch.equal(*bits)


def _size(error: float) -> float:
    return math.inf if math.isnan(error) else error


def _largest(errors: Tensor) -> float:
    """Return the largest absolute error; NaN if one is NaN."""
    sizes = errors.abs()
    return math.nan if bool(sizes.isnan().any()) else float(sizes.max())

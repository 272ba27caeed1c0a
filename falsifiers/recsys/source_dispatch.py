"""F-HSTU-SOURCE-001: the source's fused function runs the operator of each compute capability, and refuses the rest."""

import contextlib
import io
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from falsifiers.recsys.attention_cases import question
from falsifiers.recsys.oracle.hstu import truth
from falsifiers.recsys.subject import Answer, Question
from harness import Trial

_PARTS = ("out", "dq", "dk", "dv")


class FusedFunction(Protocol):
    """A fused HSTU function on a simulated compute capability; built as `Subject(setting)`.

    Attributes:
        calls: the names of the operators that ran so far, in order.
    """

    calls: list[str]

    def forward(self, question: Question, capability: int) -> Callable[[Tensor, int], Answer]:
        """Run the forward pass; what is returned runs the backward pass on a gradient and a capability.

        Raises whatever the function raises.
        """
        ...


def falsify(trial: Trial[FusedFunction]) -> None:
    """Run every width on every capability, forward and backward; then inputs that 10 or any GPU does not support."""
    parameters = trial.parameters
    table = dict(
        zip(parameters["capabilities"], zip(parameters["forward"], parameters["backward"], strict=True), strict=True)
    )
    narrow = parameters["head_dim"]
    wrong, errors, calls = list[str](), list[float](), 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for capability, (forward, backward) in table.items():
            for width in (narrow, *parameters["widths_on_10"]):
                if capability == parameters["guarded"] and width == narrow:
                    continue
                for dtype in ("bfloat16", "float16"):
                    question = _question({"width": width, "dtype": dtype}, trial)
                    ran, answer = _both(trial, question, capability, capability)
                    calls += 1
                    if ran != [forward, backward]:
                        wrong.append(f"{capability}, {width}, {dtype}: {ran}")
                    if answer is not None:
                        errors += _errors(answer, question)
        recomputed, answer = _both(trial, _question({"width": narrow}, trial), 9, parameters["guarded"])
    trial.measure(
        asked=calls,
        wrong_operators=wrong,
        errors=errors,
        printed=printed.getvalue(),
        recomputed_with=recomputed[1:],
        recomputed_errors=[] if answer is None else _errors(answer, _question({"width": narrow}, trial)),
        elsewhere=[
            f"{capability}: {error}"
            for capability in parameters["others"]
            if (error := _refusal(trial, {}, capability)) != "ValueError"
        ],
        narrow_heads=_refusal(trial, {"width": narrow}, parameters["guarded"]),
        float32=_refusal(trial, {"dtype": "float32"}, parameters["guarded"]),
        contextuals=_refusal(trial, {"contextuals": 2}, parameters["guarded"]),
        no_contextuals=_refusal(trial, {"contextuals": 0}, parameters["guarded"]),
        contextuals_elsewhere=[
            f"{capability}: {error}"
            for capability in table
            if capability != parameters["guarded"] and (error := _refusal(trial, {"contextuals": 2}, capability))
        ],
    )
    trial.resolve(device="cpu")


def _question(case: Mapping[str, Any], trial: Trial[Any]) -> Question:
    """Three short sequences with targets. The scaling length is the longest sequence, which one operator divides by."""
    rest = {
        "dtype": "bfloat16", "lengths": [9, 4, 6], "heads": 2, "width": 64, "targets": 2, "group": 1,
        "contextuals": None, "window": 0, "full": 0, "causal": True, "scaling": 1.0, "alpha": 0.6,
        "layout": "contiguous", "seed": trial.seed,
    }  # fmt: skip
    whole = {**rest, **case}
    return question({**whole, "value_width": whole["width"]}, "cpu")


def _both(
    trial: Trial[FusedFunction], question: Question, forward: int, backward: int
) -> tuple[list[str], Answer | None]:
    """The operators that ran, and the answer. If the function raises, the error ends the list."""
    trial.subject.calls.clear()
    answer = None
    with trial.subject_fault():
        try:
            answer = trial.subject.forward(question, forward)(question.grad_output, backward)
        except (ValueError, AssertionError) as error:
            return [*trial.subject.calls, type(error).__name__], None
        return list(trial.subject.calls), answer


def _refusal(trial: Trial[FusedFunction], case: Mapping[str, Any], capability: int) -> str:
    """The name of the error that the forward pass raises; empty if it raises none."""
    with trial.subject_fault():
        try:
            trial.subject.forward(_question(case, trial), capability)
        except (ValueError, AssertionError) as error:
            return type(error).__name__
    return ""


def _errors(answer: Answer, question: Question) -> list[float]:
    right = truth(question)
    pairs = ((getattr(answer, part).double(), getattr(right, part).value) for part in _PARTS)
    return [float((error - value).norm() / value.norm()) for error, value in pairs]

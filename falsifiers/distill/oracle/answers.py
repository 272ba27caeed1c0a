"""The logits of the independent model with given weights, and the distance of a subject's logits from them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from falsifiers.distill.oracle.loss import summed_loss
from falsifiers.distill.oracle.qwen2 import NotTheModel, load, new_model
from falsifiers.distill.oracle.tolerances import TOLERANCES
from harness import propagates
from harness.authoring.shadow_step import relative_difference


@dataclass(frozen=True)
class Answer:
    """The answer to tokens [batch, sequence], in float64.

    Attributes:
        logits: [batch, sequence, vocabulary].
        hidden: the output of the embedding and of each layer, [batch, sequence, hidden].
    """

    logits: Tensor
    hidden: tuple[Tensor, ...]


class IndependentModel:
    """The model that the parameters name, in plain transformers and float64."""

    def __init__(self, parameters: Mapping[str, Any], device: str) -> None:
        """Build it on the device. Raises ValueError if the parameters name no such model."""
        self._parameters = parameters
        self._model = new_model(parameters["model"], torch.device(device))

    @torch.no_grad()
    def answer(self, weights: Mapping[str, Tensor], tokens: Tensor) -> Answer | None:
        """The answer with these weights, loaded by name and shape; None if they are not the model's."""
        try:
            load(self._model, weights)
        except NotTheModel as error:
            print(f"not {self._parameters['model']}: {error}")
            return None
        answer = self._model(input_ids=tokens, use_cache=False, output_hidden_states=True)
        return Answer(answer.logits, tuple(answer.hidden_states))

    @torch.no_grad()
    def loss(
        self, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
    ) -> float:
        """The loss of a batch [rows, sequence] in nats a token; NaN if the weights are not the model's."""
        answers = self.answer(student, inputs), self.answer(teacher, inputs)
        if answers[0] is None or answers[1] is None:
            return math.nan
        alpha, temperature = self._parameters["alpha"], self._parameters["temperature"]
        rows = zip(answers[0].logits, answers[1].logits, labels, strict=True)  # row by row, because float64 is large
        return sum(float(summed_loss(*row, alpha, temperature)) for row in rows) / labels.numel()


@propagates
def in_tolerances(seen: Tensor, expected: Answer | None, dtype: str) -> float:
    """The error of a subject's logits, in tolerances of its dtype; infinite without an expected answer."""
    if expected is None or seen.shape != expected.logits.shape:
        return math.inf
    tolerance = TOLERANCES["bfloat16" if dtype in ("bfloat16", "float16") else "float32"]["student_logits"]
    return relative_difference(seen.to(expected.logits.device), expected.logits, expected.logits) / tolerance


@propagates
def deepest_difference(first: Answer | None, second: Answer | None) -> float:
    """The largest difference of two answers in any layer or in the logits, relative to the values there."""
    if first is None or second is None:
        return math.inf
    pairs = zip((*first.hidden, first.logits), (*second.hidden, second.logits), strict=True)
    return max(relative_difference(mine, theirs, theirs) for mine, theirs in pairs)

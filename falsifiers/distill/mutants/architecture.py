"""Subjects whose models are not those that the parameters name: one known defect each."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.reference import Distillation

__all__ = ["AnotherEpsilon", "AnotherRotaryBase", "LayerSkipped", "TeacherLayerSkipped"]


def _skip_last_layer(model: Qwen2ForCausalLM) -> Qwen2ForCausalLM:
    model.model.layers[-1].forward = lambda hidden_states, *_, **__: hidden_states
    return model


class LayerSkipped(Distillation):
    """The student's last layer is there, and its forward pass is left out: an exit that was meant for inference."""

    @cached_property
    def student(self) -> Qwen2ForCausalLM:
        """Without the last layer."""
        return _skip_last_layer(super().student)


class TeacherLayerSkipped(Distillation):
    """The teacher's last layer is left out, and its other layers are trained."""

    @cached_property
    def teacher(self) -> Qwen2ForCausalLM:
        """Without the last layer."""
        return _skip_last_layer(super().teacher)


class AnotherEpsilon(Distillation):
    """The student's norms add 1e-5, which is another model's."""

    @cached_property
    def student(self) -> Qwen2ForCausalLM:
        """With that epsilon."""
        student = super().student
        for module in student.modules():
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = 1e-5
        return student


class AnotherRotaryBase(Distillation):
    """The teacher's rotary base is 10,000, the default of a library."""

    @cached_property
    def teacher(self) -> Qwen2ForCausalLM:
        """With that base."""
        teacher = super().teacher
        frequencies: Tensor = teacher.model.rotary_emb.inv_freq
        exponents = torch.arange(len(frequencies), dtype=torch.float64) / len(frequencies)
        teacher.model.rotary_emb.inv_freq = (10_000.0**-exponents).to(frequencies)
        return teacher

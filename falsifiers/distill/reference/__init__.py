"""The reference subject: a Qwen2-architecture teacher and student in plain torch."""

from falsifiers.distill.reference.trainer import Distillation

__all__ = ["Distillation"]

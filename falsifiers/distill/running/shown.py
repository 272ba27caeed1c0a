"""Asking a subject for what not every subject has."""

from __future__ import annotations

from typing import Any

from falsifiers.distill.subject import Distillation
from harness import NotShown, look

__all__ = ["shown"]


@look
def shown(subject: Distillation, method: str, *arguments: Any) -> Any:
    """What a method that not every subject has returns, such as `optimizer_state`; hidden if the subject lacks it."""
    ask = getattr(subject, method, None)
    if ask is None:
        raise NotShown(f"{type(subject).__name__} has no {method}()")
    return ask(*arguments)

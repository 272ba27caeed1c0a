"""Asking a subject for what not every subject has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from falsifiers.distill.subject import Distillation
from harness import NotMeasured, NotObserved, Unobserved, propagates

__all__ = ["not_refused", "observed", "shown"]

T = TypeVar("T")


@propagates
def shown(subject: Distillation, method: str, *arguments: Any) -> Any:
    """What a method that not every subject has returns, such as `optimizer_state`; hidden if the subject lacks it."""
    ask = getattr(subject, method, None)
    if ask is None:
        raise NotObserved(f"{type(subject).__name__} has no {method}()")
    return ask(*arguments)


def observed(values: list[T]) -> list[T]:
    """The values. Raises NotObserved if one is hidden."""
    for one in values:
        if isinstance(one, Unobserved):
            one.reveal()
    return values


def not_refused(ask: Callable[[], T], alike: Callable[[], object]) -> T:
    """What the subject returns. Call it inside `subject_fault`.

    A subject may refuse what the machine does not allow: a cache on a full disk, for example. Then the falsifier does
    something alike. Only if that is refused as well is the subject not to blame.

    Raises:
        NotMeasured: `alike` raised it.
        RuntimeError: only the subject refused.
    """
    try:
        return ask()
    except NotObserved:
        raise
    except NotMeasured as refusal:
        alike()
        raise RuntimeError(f"the subject alone refuses: {refusal}") from refusal

"""Calls a subject's optional methods."""

from collections.abc import Callable
from typing import Any, TypeVar

from falsifiers.distill.subject import Distillation
from harness import NotMeasured, NotObserved, Unobserved, propagates

T = TypeVar("T")


@propagates
def shown(subject: Distillation, method: str, *arguments: Any) -> Any:
    """The result of an optional method, such as `optimizer_state`; hidden if the subject lacks it."""
    ask = getattr(subject, method, None)
    if ask is None:
        raise NotObserved(f"{type(subject).__name__} has no {method}()")
    return ask(*arguments)


def observed(values: list[T]) -> list[T]:
    """The values. Raises NotObserved if one is hidden."""
    for value in values:
        if isinstance(value, Unobserved):
            value.reveal()
    return values


def not_refused(ask: Callable[[], T], alike: Callable[[], object]) -> T:
    """What the subject returns. Call it inside `subject_fault`.

    A subject may refuse what the machine does not allow, such as a cache on a full disk. Then the falsifier does a
    similar thing itself. The subject is to blame only if that succeeds.

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

"""Placeholders for values that an external subject does not expose.

    @propagates
    def distance(before: Tensor, after: Tensor) -> float:
        return float((before - after).abs().max())

    trial.measure(drift=distance(before, trial.subject.teacher_logits(tokens)))

If the subject does not expose its logits, `drift` is not measured, the clauses that read it state the reason, and the
falsifier continues. So one falsifier serves subjects in its process and commands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, final

from harness.authoring.faults import NotObserved

__all__ = ["Unobserved", "first_observed", "propagates", "provided"]

P = ParamSpec("P")
T = TypeVar("T")


@final
class Unobserved:
    """A placeholder for a value that was not observed. Arithmetic, attributes and calls return the same placeholder.

    `Trial.measure` records the value as missing, with the reason. A condition, a loop or a conversion to a number
    raises `NotObserved`. The trial is then NOT_MEASURED, unless a function with `propagates` catches the exception.
    """

    __slots__ = ("why",)

    def __init__(self, reason: str) -> None:
        """Args:
        reason: which value is missing, and why.
        """
        self.why: Final = reason

    def __repr__(self) -> str:
        return f"Unobserved({self.why!r})"

    def __getattr__(self, name: str) -> Unobserved:
        if name.startswith("__"):  # it implements no protocol, such as `__array__`
            raise AttributeError(name)
        return self

    def _same(self, *_: Any, **__: Any) -> Unobserved:
        return self

    def reveal(self, *_: Any) -> NoReturn:
        """Raises:
        NotObserved: always, with the reason.
        """
        raise NotObserved(self.why)

    __call__ = __getitem__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __bool__ = __iter__ = __len__ = __contains__ = __int__ = __float__ = __index__ = reveal


def propagates(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that it returns an `Unobserved` instead of reading one.

    With an `Unobserved` argument the function is not called. If it raises `NotObserved`, the exception becomes an
    `Unobserved`. The annotated return type stays T, because a placeholder may replace any value.
    """

    @functools.wraps(function)
    def propagating(*args: P.args, **kwargs: P.kwargs) -> Any:
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, Unobserved):
                return argument
        try:
            return function(*args, **kwargs)
        except NotObserved as reason:
            return Unobserved(str(reason))

    return propagating


@propagates
def provided(dependency: object, value: T) -> T:
    """Return the value, or the dependency if that is `Unobserved`."""
    del dependency
    return value


def first_observed(*values: T) -> T:
    """Return the first value that is not `Unobserved`; if there is none, the first value."""
    return next((value for value in values if not isinstance(value, Unobserved)), values[0])

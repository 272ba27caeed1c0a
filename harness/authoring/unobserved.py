"""Values that a subject outside the trial's process does not show.

    @propagates
    def distance(one: Tensor, other: Tensor) -> float:
        return float((one - other).abs().max())

    trial.measure(drift=distance(before, trial.subject.teacher_logits(tokens)))

If the subject does not show its logits, `drift` is not measured, the clauses that read it say why, and the falsifier
goes on. So a falsifier reads the same for a subject in its process and for a command.
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
    """Stands for a value that could not be observed. What is computed from it is unobserved for the same reason.

    `Trial.measure` records that the value is missing, and why. A condition, a loop or a conversion to a number needs
    the value itself and raises `NotObserved`. The trial is then NOT_MEASURED, unless a function with `propagates`
    catches the exception and returns an unobserved value.
    """

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        """Args:
        reason: what is not shown, and why.
        """
        self._reason: Final = reason

    def __repr__(self) -> str:
        return f"Unobserved({self._reason!r})"

    def __getattr__(self, name: str) -> Unobserved:
        if name.startswith("__"):  # protocols of Python and of libraries, which an unobserved value does not follow
            raise AttributeError(name)
        return self

    @property
    def why(self) -> str:
        """What is not shown, and why."""
        return self._reason

    def _same(self, *_: Any, **__: Any) -> Unobserved:
        return self

    def reveal(self, *_: Any) -> NoReturn:
        """Raises:
        NotObserved: always, with the reason.
        """
        raise NotObserved(self._reason)

    __call__ = __getitem__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __bool__ = __iter__ = __len__ = __contains__ = __int__ = __float__ = __index__ = reveal


def propagates(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function returns a `Unobserved` value if what it reads is not shown.

    That is so if an argument is hidden, in which case the function is not called, and if the function raises
    `NotObserved`. The type says T, because an unobserved value may stand in the place of any other.
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
    """Return the value; an unobserved one if what it depends on is unobserved."""
    del dependency
    return value


def first_observed(*values: T) -> T:
    """Return the first value that was observed; if none was, the first one."""
    return next((value for value in values if not isinstance(value, Unobserved)), values[0])

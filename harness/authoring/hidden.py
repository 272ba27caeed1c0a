"""Values that a subject outside the trial's process does not show.

    @look
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

from harness.authoring.faults import NotShown

__all__ = ["Hidden", "first_shown", "look", "provided"]

P = ParamSpec("P")
T = TypeVar("T")


@final
class Hidden:
    """Stands for a value that is not shown. Whatever is computed from it is hidden for the same reason.

    `Trial.measure` records a hidden value as unseen. A condition, a loop or a conversion to a number needs the value
    itself and raises `NotShown`, which ends the trial as NOT_MEASURED unless a `look` turns it into a hidden value.
    """

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        """Args:
        reason: what is not shown, and why.
        """
        self._reason: Final = reason

    def __repr__(self) -> str:
        return f"Hidden({self._reason!r})"

    def __getattr__(self, name: str) -> Hidden:
        if name.startswith("__"):  # protocols of Python and of libraries, which a hidden value does not follow
            raise AttributeError(name)
        return self

    @property
    def why(self) -> str:
        """What is not shown, and why."""
        return self._reason

    def _same(self, *_: Any, **__: Any) -> Hidden:
        return self

    def reveal(self, *_: Any) -> NoReturn:
        """Raises:
        NotShown: always, with the reason.
        """
        raise NotShown(self._reason)

    __call__ = __getitem__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __bool__ = __iter__ = __len__ = __contains__ = __int__ = __float__ = __index__ = reveal


def look(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function returns a `Hidden` value if what it reads is not shown.

    That is so if an argument is hidden, in which case the function is not called, and if the function raises
    `NotShown`. The type says T, because a hidden value may stand in the place of any other.
    """

    @functools.wraps(function)
    def looked(*args: P.args, **kwargs: P.kwargs) -> Any:
        for given in (*args, *kwargs.values()):
            if isinstance(given, Hidden):
                return given
        try:
            return function(*args, **kwargs)
        except NotShown as reason:
            return Hidden(str(reason))

    return looked


@look
def provided(needed: object, value: T) -> T:
    """The value; hidden if what it depends on is hidden."""
    del needed
    return value


def first_shown(*values: T) -> T:
    """The first value that is not hidden; if all are, the first."""
    return next((value for value in values if not isinstance(value, Hidden)), values[0])

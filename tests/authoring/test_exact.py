"""A measurement is the value that the subject's object holds, not what its methods return."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.authoring.exact import number, plain, whole
from harness.authoring.faults import NotObserved
from harness.authoring.recorder import Recorder
from harness.authoring.setting import Setting
from harness.authoring.trial import Trial
from harness.authoring.unobserved import Unobserved

Pair = namedtuple("Pair", "one other")


class Colour(IntEnum):
    RED = 7


class LyingFloat(float):
    """Holds 9.0 and answers 0.0."""

    def __float__(self) -> float:
        return 0.0

    def __abs__(self) -> float:
        return 0.0

    __repr__ = __str__ = lambda self: "0.0"


class LyingInt(int):
    """Holds 9 and answers 0."""

    def __int__(self) -> int:
        return 0

    __index__ = __abs__ = __int__


class LyingText(str):
    """Holds "float64" and answers "float32"."""

    def __str__(self) -> str:
        return "float32"


class LyingList(list[Any]):
    """Holds one item and shows none."""

    def __iter__(self) -> Any:
        return iter(())


class LyingMap(dict[str, Any]):
    """Holds one item and shows none."""

    def items(self) -> Any:
        return ()


class LyingArray(np.ndarray[Any, Any]):
    """Answers zeros to every conversion."""

    def tolist(self) -> Any:
        return [0.0]


class LyingScalar(np.float32):
    """Answers 0."""

    def item(self, *_: Any) -> Any:
        return 0.0

    __float__ = item


class LyingTensor(torch.Tensor):
    """Answers zeros to every function of torch."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        return [0.0]


def lying_instance() -> torch.Tensor:
    """A plain tensor with an overridden method."""
    tensor = torch.tensor([9.0])
    tensor.tolist = lambda: [0.0]  # type: ignore[method-assign]
    return tensor


HELD: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (3, 3),
    (Colour.RED, 7),
    (2.5, 2.5),
    (math.nan, {"nonfinite": "NaN"}),
    (10**400, {"nonfinite": "Infinity"}),
    (-(10**400), {"nonfinite": "-Infinity"}),
    ("text", "text"),
    ((1, [2.0]), [1, [2.0]]),
    (Pair(1, 2), [1, 2]),
    (OrderedDict(a={1: "b"}), {"a": {"1": "b"}}),
    (np.float64(1.5), 1.5),
    (np.float32(1.5), 1.5),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.array([[1.0, math.inf]]), [[1.0, {"nonfinite": "Infinity"}]]),
    (torch.tensor(1.5), 1.5),
    (torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), [1.0, 1.0]),
    (LyingFloat(9.0), 9.0),
    (LyingInt(9), 9),
    (LyingText("float64"), "float64"),
    (LyingList([9.0]), [9.0]),
    (LyingMap(error=9.0), {"error": 9.0}),
    ({LyingText("float64"): 1}, {"float64": 1}),
    (np.array([9.0]).view(LyingArray), [9.0]),
    (LyingScalar(9.0), 9.0),
    (lying_instance(), [9.0]),
    (np.array([LyingFloat(9.0)], dtype=object), [9.0]),
]


@pytest.mark.parametrize(("value", "held"), HELD, ids=lambda value: type(value).__name__)
def test_what_a_value_holds_is_measured(value: Any, held: Any) -> None:
    """Each value is read by the functions of its own type, and becomes exactly a type of JSON."""
    found = plain(value)
    assert found == held
    assert type(found) in (type(None), bool, int, float, str, list, dict)


class Anything:
    """Answers every question with a value that would pass."""

    def tolist(self) -> list[float]:
        return [0.0]

    def __float__(self) -> float:
        return 0.0

    __int__ = __index__ = lambda self: 0
    __class__ = float  # type: ignore[assignment]


REFUSED = [
    Anything(), SimpleNamespace(tolist=lambda: 0.0), torch.ones(1).as_subclass(LyingTensor), {1}, b"bytes", Path("a"),
    np.longdouble(1), {(1, 2): 1}, [Anything()], object(),
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_other_types_are_refused(value: Any) -> None:
    """Other types are refused, even if they behave like a number or an array."""
    for read in (plain, number, whole):
        with pytest.raises(TypeError):
            read(value)


def test_a_hidden_value_is_not_shown() -> None:
    """A hidden value is recorded as not shown, at any depth of a measurement."""
    for value in (Unobserved("no"), [Unobserved("no")], {"a": (Unobserved("no"),)}):
        with pytest.raises(NotObserved):
            plain(value)


def test_steps_are_whole_numbers() -> None:
    """A step is a whole number: an int, a float without a fraction, or such a number of numpy or torch."""
    assert [whole(number) for number in (3, 3.0, LyingInt(3), np.int32(3), torch.tensor(3))] == [3] * 5
    for value in (2.5, True, math.nan, "3", None, [3]):
        with pytest.raises(TypeError):
            whole(value)


@pytest.mark.parametrize("how", ["measure", "step", "number", "resolve"])
def test_a_trial_records_what_values_hold(tmp_path: Path, how: str) -> None:
    """Each method of a trial records the value that an object holds."""
    texts: list[Any] = []
    setting = Setting({}, "cpu", 0, tmp_path, tmp_path)
    trial = Trial(None, setting, tmp_path, Recorder(frozenset({"error"}), texts.append))
    match how:
        case "measure":
            trial.measure(error=[LyingFloat(9.0)])
            assert texts[0].values == {"error": [9.0]}
        case "step":
            trial.step(1, loss=LyingFloat(9.0))
            assert texts[0].values == {"loss": 9.0}
        case "number":
            trial.step(LyingInt(9))
            assert texts[0].step == 9
        case "resolve":
            trial.resolve(dtype=LyingText("float64"), steps=LyingInt(9))
            assert texts[0].values == {"dtype": "float64", "steps": 9}

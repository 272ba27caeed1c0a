"""The harness's dataclasses behave as the standard ones with `frozen=True`."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from math import nan
from typing import Any

import pytest

from harness.base.dataclass import asdict, dataclass, field, replace


def point(decorate: Callable[..., Any]) -> Any:
    """A class with every kind of field that the harness uses."""

    class Point:
        x: int
        y: float = 2.0
        names: list[str] = field(default_factory=list, compare=False, repr=False)
        total: float = field(init=False, compare=False)
        label: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

        @cached_property
        def double(self) -> float:
            return 2 * self.total

    return decorate(frozen=True)(Point)


OURS, STANDARD = point(dataclass), point(dataclasses.dataclass)


@pytest.mark.parametrize("kind", [OURS, STANDARD])
def test_values(kind: Any) -> None:
    """Construction, text, comparison, hash, copies and derived values."""
    one = kind(1, label="a")
    assert repr(one).endswith("Point(x=1, y=2.0, total=3.0, label='a')")
    assert len({one, kind(1, 2.0, ["other"], label="a"), kind(1)}) == 2
    assert kind(nan) == kind(nan)
    assert one != kind(1)
    assert one != dataclasses.make_dataclass("Point", ["x"], frozen=True)(1)
    assert asdict(replace(one, x=5)) == {"x": 5, "y": 2.0, "names": [], "total": 7.0, "label": "a"}
    assert (one.double, kind.__match_args__) == (6.0, ("x", "y", "names"))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        kind()


@pytest.mark.parametrize("kind", [OURS, STANDARD])
@pytest.mark.parametrize("name", ["x", "total", "unknown"])
def test_an_instance_is_frozen(kind: Any, name: str) -> None:
    """Neither a field nor another attribute can be assigned or deleted."""
    one = kind(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(one, name)


@dataclass(frozen=True)
class Base:
    """A base class."""

    x: int

    def __eq__(self, other: object) -> bool:
        """Equal to everything."""
        return True


@dataclass(frozen=True)
class Derived(Base):
    """Made by the standard decorator."""

    y: int = 0


@dataclass(frozen=True)
class Empty:
    """A class without fields."""


def test_classes_that_inherit_and_methods_of_their_own() -> None:
    """A method in the class stays. A class with an `__eq__` of its own has a hash too, as the standard one has."""
    assert Base(1) == Base(2)
    assert hash(Base(1)) == hash(Base(1)) != hash(Base(2))
    assert (Derived(1, 2), Derived(1, 2) == Derived(1, 3)) == (Derived(1, 2), False)
    assert (Empty(), repr(Empty())) == (Empty(), "Empty()")
    assert pickle.loads(pickle.dumps(Derived(1, 2))) == Derived(1, 2)
    assert pickle.loads(pickle.dumps(Base(4))).x == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived(1, 2).y = 3  # type: ignore[misc]

"""Strict JSON: invalid documents are refused with place and remedy; everything else is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from harness.base import strictjson
from harness.base.strictjson import JsonError
from tests.strategies import json_values


@pytest.mark.parametrize(
    ("text", "pointer", "message", "remedy"),
    [
        ('{"a": [1, NaN]}', "/a/1", "NaN is not JSON", "write a finite number"),
        ('{"a": {"b": -Infinity}}', "/a/b", "-Infinity is not JSON", "write a finite number"),
        ('{"a": 1e400}', "/a", "the number 1e400 does not fit a double", "write a finite number"),
        ('{"a": -1e400}', "/a", "the number -1e400 does not fit a double", "write a finite number"),
        (f'{{"a": {"9" * 309}}}', "/a", f"the number {'9' * 40} does not fit a double", "write a finite number"),
        (f'{{"a": {"9" * 5000}}}', "/a", f"the number {'9' * 40} does not fit a double", "write a finite number"),
        ('{"a": {"b": 1, "b": 2}}', "/a/b", "the key 'b' occurs twice in one object", "keep one of them"),
        ('{"b": NaN, "b": 2}', "/b", "NaN is not JSON", "write a finite number"),
        ('{"a/b": {"~": NaN}}', "/a~1b/~0", "NaN is not JSON", "write a finite number"),
        ('{"a": NaN, "b": [Infinity], "a": 1e400}', "/a", "NaN is not JSON", "write a finite number"),
        (
            '{"a": 1, "b": [[], [0, -1e9]], "c": -1e999}',
            "/c",
            "the number -1e999 does not fit a double",
            "write a finite number",
        ),
        ('{"a": NaN, "b": 1, "b": 2}', "/a", "NaN is not JSON", "write a finite number"),
        ('{"a": [NaN], "a": 2}', "", "NaN is not JSON", "write a finite number"),  # its place was overwritten
        ('[{"b": 1, "b": 2, "b": 3}]', "/0/b", "the key 'b' occurs twice in one object", "keep one of them"),
        ("-1" + "0" * 309, "", f"the number -1{'0' * 38} does not fit a double", "write a finite number"),
        ("[" * 101 + "]" * 101, "", "nested too deeply", "keep to 100 levels"),
        ('{"a":' * 101 + "1" + "}" * 101, "", "nested too deeply", "keep to 100 levels"),
        ('[1, {"a":' * 50 + "[]" + "}]" * 50, "", "nested too deeply", "keep to 100 levels"),
        ("[" * 100_000, "", "nested too deeply", "keep to 100 levels"),
        ('{"a": 1,}', "", None, "write strict JSON"),
        ("", "", None, "write strict JSON"),
    ],
)
def test_refusals(text: str, pointer: str, message: str | None, remedy: str) -> None:
    """A document that is not strict JSON is refused with the place, the cause and the remedy."""
    with pytest.raises(JsonError) as refused:
        strictjson.loads(text)
    assert pointer == refused.value.pointer
    assert remedy == refused.value.remedy
    if message is not None:
        assert message == refused.value.message


def test_refuses_what_is_not_utf8() -> None:
    with pytest.raises(JsonError):
        strictjson.loads(b'"\xff"')


def test_the_largest_double_is_read() -> None:
    expected = [1.7976931348623157e308, strictjson.LARGEST, -1.7976931348623157e308, -strictjson.LARGEST]
    assert expected == strictjson.loads(json.dumps(expected))
    assert expected == strictjson.tag_nonfinite(expected)


def test_a_small_number_may_have_many_digits() -> None:
    """The limit on the number of digits holds for integers only."""
    assert strictjson.loads(f"[0.{'1' * 5000}, {'1' * 400}e-399]") == [1 / 9, 10 / 9]


def test_a_hundred_levels_are_read() -> None:
    for text in ("[" * 100 + "]" * 100, '[1, {"a":' * 50 + "1" + "}]" * 50):
        assert json.loads(text) == strictjson.loads(text)


@given(json_values)
def test_tags_survive_a_file(value: Any) -> None:
    """The tagged form of every measurement is strict JSON. Reading and tagging it again does not change it."""
    tagged = strictjson.tag_nonfinite(value)
    again = strictjson.tag_nonfinite(strictjson.untag_nonfinite(strictjson.loads(strictjson.dumps(tagged))))
    assert tagged == again


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_tags_are_undone(number: float) -> None:
    assert repr({"a": [number]}) == repr(strictjson.untag_nonfinite(strictjson.tag_nonfinite({"a": [number]})))


def test_how_what_is_not_finite_is_written() -> None:
    """An integer that a double cannot hold is tagged too. A tuple becomes a list."""
    beyond = strictjson.LARGEST + 1
    given = (math.nan, math.inf, -math.inf, beyond, -beyond, True, {"a": (1, "NaN")})
    names = ("NaN", "Infinity", "-Infinity", "Infinity", "-Infinity")
    assert strictjson.tag_nonfinite(given) == [*({"nonfinite": name} for name in names), True, {"a": [1, "NaN"]}]


@pytest.mark.parametrize(
    "value",
    [{}, {"nonfinite": "nan"}, {"nonfinite": None}, {"nonfinite": ["NaN"]}, {"nonfinite": "NaN", "a": 1}, {"a": "NaN"}],
)
def test_what_is_no_tag(value: dict[str, Any]) -> None:
    assert not strictjson.is_tagged(value)
    assert strictjson.untag_nonfinite({"a": [value]}) == {"a": [value]}


def test_what_an_error_says() -> None:
    """An error has the place if it is known, the cause, and the remedy."""
    assert str(JsonError("it is wrong", "right it", "/a")) == "/a: it is wrong (right it)"
    assert str(JsonError("it is wrong", "right it")) == "it is wrong (right it)"
    assert str(JsonError("it is wrong")) == "it is wrong (write strict JSON)"


def test_the_form_of_a_file(tmp_path: Path) -> None:
    """A document is indented UTF-8 with a newline at the end. A single text is one line."""
    strictjson.dump({"é": [1]}, tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == '{\n  "é": [\n    1\n  ]\n}\n'.encode()
    assert strictjson.dumps({"é": [1]}) == '{"é": [1]}'


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The operating system's error is raised."""
    with pytest.raises(FileNotFoundError):
        strictjson.load(tmp_path / "a.json")


def test_dumps_refuses_what_is_not_finite() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        strictjson.dumps({"a": math.nan})


def test_half_a_surrogate_pair_survives_a_file(tmp_path: Path) -> None:
    """Text that the operating system could not decode is written as an escape and read back."""
    expected = {"text": "\udc80 é"}
    strictjson.dump(expected, tmp_path / "a.json")
    assert expected == strictjson.load(tmp_path / "a.json")

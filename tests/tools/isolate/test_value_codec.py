"""Values arrive unchanged, with exactly the types of their Protocol. Anything else is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.tools.isolate.value_codec import Blobs, NotCarried, codec_of


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Record:
    name: str
    shape: tuple[int, ...]
    data: bytes = b""
    colour: Colour | None = None


@dataclass(frozen=True)
class LongerRecord(Record):
    more: float = 0.0


@dataclass(frozen=True)
class Batch:
    values: torch.Tensor
    more: Mapping[str, torch.Tensor]


@dataclass
class Changeable:
    value: int


@dataclass(frozen=True)
class Chain:
    rest: Chain | None


def there_and_back(hint: Any, value: Any) -> Any:
    """The value after encoding and decoding."""
    codec, blobs = codec_of(hint), Blobs()
    sent = json.loads(json.dumps(codec.pack(value, blobs)))
    return codec.unpack(sent, [bytearray(blob) for blob in blobs])


CARRIED = [
    (None, None), (bool, True), (int, 10**30), (float, -0.0), (float, math.inf), (str, "a\n\udc80"), (bytes, b"\0\xff"),
    (Path, Path("/a/b")), (Colour, Colour.RED), (Literal["new", 3], 3), (int | None, None), (float | str, "a"),
    (tuple[int, ...], (1, 2)), (tuple[int, str], (1, "a")), (list[bytes], [b"a", b""]), (Sequence[str], ("a", "b")),
    (Mapping[Colour, int], {Colour.RED: 3}), (dict[int, float], {3: 1.5}),
    (Any, {"a": [1, 2.5, None, True, {"b": "c"}]}), (Mapping[str, Any], {}),
    (Any, {"tuple": [(1, [2, ()]), {"map": {}}]}), (Any, (1, 2)),
    (Record, Record("a", (1, 2), b"x", Colour.RED)), (Sequence[Record], (Record("a", ()),)),
    (Record, LongerRecord("a", (), more=2.5)),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), CARRIED, ids=[str(hint) for hint, _ in CARRIED])
def test_a_value_arrives_as_it_was_sent(hint: Any, value: Any) -> None:
    """A value arrives with its type."""
    found = there_and_back(hint, value)
    assert (found, type(found)) == (value, type(value))


DTYPES = [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_tensors_arrive_bit_by_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """A tensor arrives with its bits and strides, and without its graph."""
    tensor = (torch.randn(shape) * 3).to(dtype)
    for view in (tensor, tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor):
        batch = there_and_back(Batch, Batch(view, {"a": tensor}))
        assert (batch.values.dtype, batch.values.shape) == (dtype, torch.Size(shape))
        assert torch.equal(batch.values, tensor)
        assert batch.values.stride() == view.stride()
        assert torch.equal(batch.more["a"], tensor)
    alone = torch.arange(8).reshape(4, 2)[1:2, 1]  # torch calls its stride of 2 contiguous
    assert there_and_back(Batch, Batch(alone, {})).values.tolist() == [3]
    weight = torch.nn.Parameter(torch.ones(2, requires_grad=True) * 2)
    found = there_and_back(Batch, Batch(weight, {})).values
    assert (type(found), found.requires_grad) == (torch.Tensor, False)


def test_strides_arrive_unless_places_are_shared_or_far_apart() -> None:
    """A part of a tensor keeps its strides. A spread number, and a few numbers of a long tensor, arrive contiguous."""
    whole = torch.arange(640.0).reshape(10, 64)
    for view, strides in ((whole[:, 8:24], (64, 1)), (whole[:1].expand(10, 64), (64, 1)), (whole[:, ::32], (2, 1))):
        found = there_and_back(Batch, Batch(view, {})).values
        assert torch.equal(found, view)
        assert found.stride() == strides


def test_a_dataclass_that_the_other_process_does_not_know_arrives_as_the_one_above() -> None:
    """The subject's own classes below those of the Protocol lose what the Protocol does not have."""
    codec = codec_of(Record)

    @dataclass(frozen=True)
    class Own(LongerRecord):
        further: int = 0

    blobs = Blobs()
    sent = codec.pack(Own("a", (), more=2.5, further=3), blobs)
    assert codec.unpack(sent, blobs) == LongerRecord("a", (), more=2.5)


@pytest.mark.parametrize("strides", [[1, 1], [64], [-2, 1], [1000, 1]])
def test_strides_that_no_tensor_has_are_refused(strides: list[int]) -> None:
    """A subject can send any strides. Impossible ones are refused."""
    codec = codec_of(Batch)
    blobs = Blobs()
    sent = codec.pack(Batch(torch.zeros(2, 3), {}), blobs)
    sent[1][2] = strides
    with pytest.raises(TypeError):
        codec.unpack(sent, blobs)


def test_what_a_call_writes_into_a_tensor_comes_back() -> None:
    """The tensor that was sent gets the new elements where it lies, and its neighbours in memory stay."""
    codec, sent, back = codec_of(Batch), Blobs(), Blobs()
    whole = torch.arange(6.0).reshape(2, 3)
    packed = codec.pack(Batch(whole[:, 1], {"same": torch.ones(2)}), sent)
    given = [bytearray(blob) for blob in sent]
    before = [bytes(blob) for blob in given]
    arrived = codec.unpack(packed, given)
    arrived.values.mul_(10)
    codec.pack(arrived, back)
    written = back.changes(before)
    assert [*written] == [0]
    sent.write_back(0, bytearray(written[0]))
    assert whole.tolist() == [[0, 10, 2], [3, 40, 5]]
    with pytest.raises(RuntimeError):
        sent.write_back(0, bytearray(4))


def test_nan_arrives_as_it_is() -> None:
    """NaN arrives, with its bits in a tensor."""
    assert math.isnan(there_and_back(float, math.nan))
    assert there_and_back(Batch, Batch(torch.tensor([math.nan, -0.0]), {})).values.isnan().tolist() == [True, False]


def test_numbers_of_numpy_become_pythons() -> None:
    """A number of numpy becomes the float or int of the Protocol."""
    for hint, value in ((float, np.float32(1.5)), (float, torch.tensor(1.5)), (int, np.int64(3)), (float, 3)):
        found = there_and_back(hint, value)
        assert (found, type(found)) == (value, hint)


@pytest.mark.parametrize(
    "hint",
    [torch.Tensor, Mapping[str, torch.Tensor], tuple[torch.Tensor, torch.Tensor], object, Changeable, Chain,
     Callable[[int], int], set[int], np.ndarray, list[Changeable], "missing", torch.nn.Module, type],
    ids=str,
)  # fmt: skip
def test_what_is_no_value_has_no_codec(hint: Any) -> None:
    """Objects with their own behaviour or memory have no codec."""
    with pytest.raises(NotCarried):
        codec_of(hint)


WRONG = [
    (bool, 1), (int, "1"), (int, 1.5), (float, "1"), (str, b"a"), (bytes, "a"), (bytes, bytearray(b"a")), (None, 0),
    (tuple[int, ...], [1]), (tuple[int, int], (1, 2, 3)), (list[int], (1,)), (Sequence[str], "ab"), (Sequence[int], 3),
    (Mapping[str, int], [("a", 1)]), (Record, ("a", (1,), b"", None)), (Record, Record("a", [1])), (Any, int),  # type: ignore[arg-type]
    (Any, {1: 2}), (Literal["a"], "b"), (Literal[1], True), (Colour, "red"), (int | None, "a"), (Batch, Batch(3, {})),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("hint", "value"), WRONG, ids=str)
def test_what_is_not_of_the_type_is_not_sent(hint: Any, value: Any) -> None:
    """The subject gets an error like that of a type checker."""
    with pytest.raises((TypeError, ValueError)):
        codec_of(hint).pack(value, Blobs())


SENT = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "RED", "a", "float32", "cpu"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)
HINTS: list[Any] = [hint for hint, _ in CARRIED if hint is not Any] + [Batch]


@given(st.sampled_from(HINTS), SENT, st.lists(st.binary(max_size=9).map(bytearray), max_size=2))
def test_whatever_is_sent_gives_the_type_or_an_exception(hint: Any, sent: Any, blobs: list[bytearray]) -> None:
    """Another process cannot choose a class: a value that arrives can be packed, and arrives again."""
    codec = codec_of(hint)
    try:
        found = codec.unpack(sent, blobs)
    except (TypeError, ValueError, LookupError, RuntimeError, AttributeError):
        return
    codec.pack(found, Blobs())

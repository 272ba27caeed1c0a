"""The differences of two checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from harness.tools.inspect.checkpoint import Refused, compare
from tests.tools.inspect.checkpoint.files import FORMATS, apr, gguf_bytes, safetensors_bytes

W = np.arange(6, dtype=np.float32).reshape(2, 3) + 1


def written(folder: Path, **arrays: np.ndarray) -> Path:  # type: ignore[type-arg]
    """A safetensors file."""
    path = folder / f"{len(list(folder.iterdir()))}.safetensors"
    path.write_bytes(safetensors_bytes(arrays))
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_the_same_as_itself(form: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FORMATS[form]({"w": W}, tmp_path))
    seen = compare(path, path)
    assert seen.same
    assert len(seen.equal) == 1


def test_the_same_weights_in_two_formats(tmp_path: Path) -> None:
    """The order of tensors and dimensions in the file makes no difference."""
    arrays = {"b": W, "a": W.astype(np.float16)}
    (tmp_path / "gguf").write_bytes(gguf_bytes(arrays, tmp_path))
    (tmp_path / "apr").write_bytes(apr(arrays))
    seen = compare(tmp_path / "gguf", tmp_path / "apr")
    assert seen.same
    assert set(seen.equal) == {"a", "b"}


def test_missing_extra_and_changed(tmp_path: Path) -> None:
    """A missing tensor exists only in the other file."""
    last = np.array([0, 0, 0.5], np.float32)
    this = written(tmp_path, same=W, mine=W, shape=W, dtype=W, values=W)
    other = written(tmp_path, same=W, theirs=W, shape=W.T.copy(), dtype=W.astype(np.float16), values=W + last)
    seen = compare(this, other)
    assert (seen.missing, seen.extra, seen.equal) == (("theirs",), ("mine",), ("same",))
    changed = {change.name: change for change in seen.changed}
    assert changed["shape"].shapes == ((2, 3), (3, 2))
    assert changed["shape"].largest is None
    assert changed["dtype"].dtypes == ("F32", "F16")
    assert changed["dtype"].largest == 0.0
    assert changed["values"].largest == 0.5
    # The values that differ are 3 and 6, both by 0.5; the other file has 3.5 and 6.5 there.
    expected = np.sqrt(2 * 0.25) / np.sqrt(1 + 4 + 3.5**2 + 16 + 25 + 6.5**2)
    assert changed["values"].relative == pytest.approx(expected)


def test_bits_that_are_no_difference_in_value(tmp_path: Path) -> None:
    """Zeros of either sign differ by 0. NaNs with equal bits are equal; other NaNs are not compared."""
    nan = np.array([np.nan, 1.0], np.float32)
    this = written(tmp_path, zero=np.array([0.0, 1.0]), same=nan, nan=nan)
    other = written(tmp_path, zero=np.array([-0.0, 1.0]), same=nan, nan=np.array([2.0, 1.5], np.float32))
    seen = compare(this, other)
    changed = {change.name: change for change in seen.changed}
    assert seen.equal == ("same",)
    assert (changed["zero"].largest, changed["zero"].relative) == (0.0, 0.0)
    assert (changed["nan"].largest, changed["nan"].not_comparable) == (0.5, 1)


def test_against_zeros_there_is_no_relative_difference(tmp_path: Path) -> None:
    seen = compare(written(tmp_path, w=W), written(tmp_path, w=np.zeros_like(W)))
    assert (seen.changed[0].largest, seen.changed[0].relative) == (6.0, None)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=arrays_of.array_shapes(max_dims=3, max_side=6), seed=st.integers(0, 1000))
def test_a_view_equals_its_copy(shape: tuple[int, ...], seed: int, tmp_path: Path) -> None:
    """One side has transposed strides, the other is row-major. A change of one element is found."""
    tensor = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))
    view = tensor.permute(*reversed(range(tensor.ndim)))
    torch.save({"t": view}, tmp_path / "view.pt")
    torch.save({"t": view.contiguous()}, tmp_path / "copy.pt")
    assert compare(tmp_path / "view.pt", tmp_path / "copy.pt").same
    other = view.contiguous().clone()
    other.view(-1)[0] += 1
    torch.save({"t": other}, tmp_path / "other.pt")
    (change,) = compare(tmp_path / "view.pt", tmp_path / "other.pt").changed
    assert change.largest == pytest.approx(1.0)


def test_a_refusal_names_its_file(tmp_path: Path) -> None:
    good, bad = written(tmp_path, w=W), tmp_path / "bad"
    bad.write_bytes(b"no checkpoint at all")
    for pair in ((good, bad), (bad, good)):
        with pytest.raises(Refused) as refused:
            compare(*pair)
        assert refused.value.path == bad

"""Cached tensors are used only if their digest is right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from falsifiers.distill.text.tensor_cache import cached_tensors


class Maker:
    """Makes tensors and counts the calls."""

    def __init__(self) -> None:
        """Begin with a count of zero."""
        self.made = 0

    def __call__(self) -> dict[str, torch.Tensor]:
        """Two tensors that are the same every time."""
        self.made += 1
        return {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}


def kept_file(folder: Path) -> Path:
    """The only file of the cache."""
    (file,) = folder.glob("*.safetensors")
    return file


def test_tensors_are_made_once(tmp_path: Path) -> None:
    """The second call reads the file, and another key makes a new one. No incomplete file is left."""
    make = Maker()
    first = cached_tensors(tmp_path, "kind", {"seed": 1}, make)
    second = cached_tensors(tmp_path, "kind", {"seed": 1}, make)
    assert make.made == 1
    assert all(torch.equal(first[name], second[name]) for name in ("a", "b"))
    cached_tensors(tmp_path, "kind", {"seed": 2}, make)
    assert make.made == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    """A file is made again if it is cut short, has a flipped bit, or has no digest."""
    make = Maker()
    expected = cached_tensors(tmp_path, "kind", {}, make)
    file = kept_file(tmp_path)
    whole = file.read_bytes()
    plain = load_file(file)
    for damage in (
        lambda: file.write_bytes(whole[:-1]),
        lambda: file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])),
        lambda: save_file(plain, file),
        lambda: file.write_bytes(b""),
    ):
        before = make.made
        damage()
        got = cached_tensors(tmp_path, "kind", {}, make)
        assert make.made == before + 1
        assert torch.equal(got["a"], expected["a"])


def test_one_makes_while_the_others_wait(tmp_path: Path) -> None:
    """Four callers start at once. One makes the tensors, and the others wait."""
    make = Maker()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: cached_tensors(tmp_path, "kind", {}, make), range(4)))
    assert make.made == 1
    assert all(torch.equal(result["a"], results[0]["a"]) for result in results)


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """If the tensors cannot be written, the call raises, and the next call starts again."""
    shared = torch.ones(2)
    with pytest.raises(RuntimeError):
        cached_tensors(tmp_path, "kind", {}, lambda: {"a": shared, "b": shared})
    assert not [file for file in tmp_path.iterdir() if file.suffix != ".lock"]

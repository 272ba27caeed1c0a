"""Cached tensors are used only if their digest is right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from falsifiers.distill.reference.teacher_cache import logits_of, write_teacher_cache
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


VOCABULARY = 50


def answers(scale: float) -> Tensor:
    """Logits [2, 3, 50]."""
    return scale * torch.randn(2, 3, VOCABULARY, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("top_k", [1, 7, VOCABULARY - 1, VOCABULARY])
def test_the_rest_weighs_together_what_it_weighed(tmp_path: Path, scale: float, top_k: int) -> None:
    """At any temperature, the kept logits and the sum of the others have their weights, also after rounding."""
    logits = answers(scale)
    write_teacher_cache(tmp_path / "cache", top_k, {}, [(1, logits)])
    cached = logits_of(tmp_path / "cache", 1, VOCABULARY)
    tokens = logits.topk(top_k, dim=-1).indices
    assert torch.allclose(cached.gather(-1, tokens), logits.gather(-1, tokens), rtol=2**-11, atol=1e-7)
    rest, was = (logit.scatter(-1, tokens, -torch.inf) for logit in (cached, logits))
    assert torch.allclose(rest.logsumexp(dim=-1), was.logsumexp(dim=-1), atol=1e-5)
    others = rest[rest.isfinite()].reshape(2, 3, VOCABULARY - top_k)
    assert torch.equal(others, others[..., :1].expand_as(others))


def test_the_same_question_is_answered_once(tmp_path: Path) -> None:
    """Another question, or one of another width, is answered anew."""
    calls = []

    def asking() -> Tensor:
        calls.append(1)
        return answers(1.0)

    for made_from, top_k in (({"seed": 1}, 3), ({"seed": 1}, 3), ({"seed": 2}, 3), ({"seed": 2}, 4)):
        write_teacher_cache(tmp_path / "cache", top_k, made_from, ((1, asking()) for _ in range(1)))
    assert len(calls) == 3

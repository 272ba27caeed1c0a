"""The answers that the cache of a teacher gives back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from falsifiers.distill.reference.teacher_cache import logits_of, write_teacher_cache

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
    rest, was = (one.scatter(-1, tokens, -torch.inf) for one in (cached, logits))
    assert torch.allclose(rest.logsumexp(dim=-1), was.logsumexp(dim=-1), atol=1e-5)
    others = rest[rest.isfinite()].reshape(2, 3, VOCABULARY - top_k)
    assert torch.equal(others, others[..., :1].expand_as(others))


def test_the_same_question_is_answered_once(tmp_path: Path) -> None:
    """Another question, or one of another width, is answered anew."""
    asked = []

    def asking() -> Tensor:
        asked.append(1)
        return answers(1.0)

    for made_from, top_k in (({"seed": 1}, 3), ({"seed": 1}, 3), ({"seed": 2}, 3), ({"seed": 2}, 4)):
        write_teacher_cache(tmp_path / "cache", top_k, made_from, ((1, asking()) for _ in range(1)))
    assert len(asked) == 3

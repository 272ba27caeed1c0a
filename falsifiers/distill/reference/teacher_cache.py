"""Precomputed teacher answers: the largest logits of every position, and the sum of the others.

Of V logits the K largest are kept in float16, with the logarithm of the sum of exponentials of the others in float32.
So the sum of the others does not depend on the rounding of the kept ones. It is spread evenly over the other V - K
tokens, as one logit that any temperature may divide.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from falsifiers.distill.reference.export import save_weights

_MADE_FROM = "made_from"


def write_teacher_cache(
    path: Path, top_k: int, made_from: Mapping[str, Any], answers: Iterable[tuple[int, Tensor]]
) -> Path:
    """Write the answers of some steps, unless the file already holds the answers to the same question.

    Args:
        path: the file; equal questions give equal bytes.
        top_k: logits to keep per position.
        made_from: strict JSON that determines the answers: teacher, text, steps. It is kept in the file.
        answers: each step with the teacher's logits [batch, sequence, vocabulary]; computed only on demand.

    Raises:
        OSError: the file cannot be written.
    """
    question = json.dumps({**made_from, "top_k": top_k}, sort_keys=True, allow_nan=False)
    if _question_of(path) == question:
        return path
    tensors: dict[str, Tensor] = {}
    for step, logits in answers:
        values, tokens = logits.float().topk(top_k, dim=-1)
        tensors |= {
            f"{step}/logits": values.half().cpu(),
            f"{step}/tokens": tokens.int().cpu(),
            f"{step}/rest": logits.float().scatter(-1, tokens, -math.inf).logsumexp(dim=-1).cpu(),
        }
    # One entry only: safetensors does not write several in a fixed order.
    return save_weights(tensors, path, {_MADE_FROM: question})


def logits_of(path: Path, step: int, vocabulary: int) -> Tensor:
    """Logits [batch, sequence, vocabulary] in float32 on the CPU, from the file."""
    with safe_open(path, framework="pt") as file:
        kept = file.get_tensor(f"{step}/logits").float()
        tokens, rest = file.get_tensor(f"{step}/tokens").long(), file.get_tensor(f"{step}/rest")
    each = rest - math.log(max(1, vocabulary - kept.shape[-1]))
    return each.unsqueeze(-1).repeat(1, 1, vocabulary).scatter(-1, tokens, kept)


def _question_of(path: Path) -> str | None:
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get(_MADE_FROM)
    except (OSError, SafetensorError):
        return None

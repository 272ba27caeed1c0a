"""The teacher that the contracts state, trained without any code of a subject.

- transformers draws its initial weights after `torch.manual_seed(2 * teacher_seed)`.
- The batch of step k is drawn from the training text with the seed `(2 * teacher_seed, k)`; see `corpus.py`.
- Each step is one of AdamW on the mean cross entropy of the next tokens. The learning rate falls to zero along half a
  cosine: step k has `teacher_learning_rate * (1 + cos(pi * (k - 1) / teacher_steps)) / 2`.
"""

import inspect
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from falsifiers.distill.oracle import corpus, qwen2
from falsifiers.distill.oracle.cache import kept
from falsifiers.distill.oracle.corpus import Text, draw

_STATED = frozenset(
    {
        "model",
        "dtype",
        "tokenizer",
        "sequence",
        "teacher_steps",
        "teacher_batch",
        "teacher_learning_rate",
        "teacher_seed",
    }
)


def trained_teacher(parameters: Mapping[str, Any], text: Text, device: torch.device, cache: Path) -> dict[str, Tensor]:
    """The teacher's weights by name, on the CPU, in the dtype that the parameters name; trained once for a cache.

    Raises:
        NotMeasured: the cache cannot be used.
    """
    determined_by = {
        **{name: parameters[name] for name in _STATED},
        "text": text.digest,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "libraries": [torch.__version__, transformers.__version__],
        "code": [inspect.getsource(module) for module in (sys.modules[__name__], qwen2, corpus)],
    }
    return kept(cache, "teacher", determined_by, lambda: _trained(parameters, text, device))


def _trained(parameters: Mapping[str, Any], text: Text, device: torch.device) -> dict[str, Tensor]:
    seed = 2 * parameters["teacher_seed"]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
        torch.manual_seed(seed)
        model = qwen2.new_model(parameters["model"], device, getattr(torch, parameters["dtype"])).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=parameters["teacher_learning_rate"])
        for step in range(parameters["teacher_steps"]):
            falling = (1 + math.cos(math.pi * step / parameters["teacher_steps"])) / 2
            optimizer.param_groups[0]["lr"] = parameters["teacher_learning_rate"] * falling
            drawn = draw(text.training, (seed, step + 1), parameters["teacher_batch"], parameters["sequence"])
            inputs, labels = (part.to(device) for part in drawn)
            logits = model(input_ids=inputs, use_cache=False).logits
            chosen = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
            loss = (logits.logsumexp(-1) - chosen).mean()
            model.zero_grad()
            loss.backward()
            optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}

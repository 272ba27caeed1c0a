"""The steps that benchmarks.probe predicts: a function of probe_steps.py or unusual_steps.py, and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ALL", "CONFIGURATIONS", "OVER_TWO_GPUS", "chosen"]

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "distillation-4x256": ("distillation", {}),
    "distillation-8x512": ("distillation", {"batch": 8, "length": 512}),
    "distillation-16x128": ("distillation", {"batch": 16, "length": 128}),
    "distillation-2x2048": ("distillation", {"batch": 2, "length": 2048}),
    "fused-4x512": ("distillation", {"length": 512, "optimizer": "fused"}),
    "math-attention-4x1024": ("distillation", {"length": 1024, "math": True}),
    "math-attention-eager-4x512": ("distillation", {"length": 512, "attention": "eager"}),
    "flash-bfloat16-8x512": ("distillation", {"batch": 8, "length": 512, "bfloat16": True}),
    "flash-autocast-8x512": ("distillation", {"batch": 8, "length": 512, "autocast": True}),
    "checkpointing-8x512": ("distillation", {"batch": 8, "length": 512, "checkpointing": True}),
    "accumulate-4-of-2x512": ("distillation", {"batch": 2, "length": 512, "accumulate": 4}),
    "chunked-8x512": ("distillation", {"batch": 8, "length": 512, "chunks": 8}),
    "byte-adam-4x256": ("distillation", {"optimizer": "byte"}),
    "clipped-sgd-4x512": ("distillation", {"length": 512, "optimizer": "sgd", "clip": True}),
    "1.5b-autocast-2x1024": ("language_model", {}),
    "1.5b-float32-2x512": ("language_model", {"length": 512, "optimizer": "foreach", "autocast": False}),
    "decomposition": ("decomposition", {}),
    "decomposition-wide": ("decomposition", {"components": 16384, "sites": 4}),
}

OVER_TWO_GPUS: dict[str, tuple[str, dict[str, Any]]] = {
    "fsdp2-4x512": ("sharded", {}),
    "fsdp2-1.5b-bfloat16-4x1024": ("sharded", {"size": "1.5b", "length": 1024, "bfloat16": True}),
    "ddp-4x512": ("replicated", {}),
    "ddp-views-4x512": ("replicated", {"views": True}),
}
# Models and steps from which no value of harness/tools/probe was read.
HELD_OUT: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2-medium-4x1024": ("architecture", {"name": "gpt2"}),
    "gpt2-medium-autocast-8x512": ("architecture", {"name": "gpt2", "batch": 8, "length": 512, "autocast": True}),
    "llama-1b-bfloat16-4x1024": ("architecture", {"name": "llama", "dtype": "bfloat16"}),
    "llama-1b-padded-4x512": ("architecture", {"name": "llama", "length": 512, "padded": True, "autocast": True}),
    "bert-large-16x256": ("architecture", {"name": "bert", "batch": 16, "length": 256}),
    "t5-base-8x256": ("architecture", {"name": "t5", "batch": 8, "length": 256}),
    "mixture-bfloat16-4x512": ("architecture", {"name": "olmoe", "length": 512, "dtype": "bfloat16"}),
    "0.5b-adafactor-4x512": ("architecture", {"name": "qwen", "length": 512, "optimizer": "adafactor"}),
}
# Steps of other kinds, held out as well.
UNUSUAL: dict[str, tuple[str, dict[str, Any]]] = {
    "adapters-16x512": ("adapters", {}),
    "experts-index-add": ("experts", {}),
    "attention-with-bias": ("biased_attention", {}),
    "attention-with-learned-bias": ("biased_attention", {"learned": True}),
    "updates-in-backward": ("updates_in_backward", {}),
    "saved-on-host": ("saved_on_host", {}),
    "reentrant-averaged": ("reentrant", {}),
    "two-adversaries": ("adversaries", {}),
    "padded-encoder-muon": ("padded_encoder", {}),
    "bags-vmap": ("bags", {}),
    "convolutions-float16": ("convolutions", {}),
    "transformers-trainer-8x512": ("trainer", {}),
    "trl-sft-8x512": ("trainer", {"kind": "sft"}),
    "trl-gkd-4x512": ("trainer", {"kind": "gkd", "batch": 4}),
}
ALL = {**CONFIGURATIONS, **OVER_TWO_GPUS, **HELD_OUT, **UNUSUAL}


def chosen(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function that builds a step, and its arguments."""
    from benchmarks import probe_steps, unusual_steps

    function, keywords = ALL[name]
    return getattr(unusual_steps if name in UNUSUAL else probe_steps, function), keywords

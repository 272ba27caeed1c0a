"""Qwen2 in its published shapes, with weights loaded by name and shape."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

INITIALIZER_RANGE = 0.02
"""Standard deviation of the initial weights, as in Qwen2's config.json."""


class NotTheModel(ValueError):
    """The tensors are not those of the model that the parameters name."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a Qwen2 model. Output head and embedding are one tensor."""

    vocabulary: int
    hidden: int
    feed_forward: int
    layers: int
    heads: int
    key_value_heads: int
    positions: int = 32_768
    rotary_base: float = 1_000_000.0
    norm_epsilon: float = 1e-6
    activation: str = "silu"


SHAPES: Mapping[str, Shape] = {
    "qwen2-tiny": Shape(256, 64, 176, layers=2, heads=4, key_value_heads=2, positions=512),
    # https://huggingface.co/Qwen/Qwen2-0.5B/blob/main/config.json
    "qwen2-0.5b": Shape(151_936, 896, 4864, layers=24, heads=14, key_value_heads=2),
    "qwen2-0.5b-4-layers": Shape(151_936, 896, 4864, layers=4, heads=14, key_value_heads=2),
}
"""The shape of each value of parameter `model`."""


def new_model(name: str, device: torch.device, dtype: torch.dtype = torch.float64) -> Qwen2ForCausalLM:
    """The model on the device, in evaluation mode; load weights before you use it.

    transformers computes Qwen2's root mean squares in float32 for any dtype of the weights. So float64 logits are exact
    to about 1e-7 of their size. The states of the random generators do not change.

    Raises:
        ValueError: no such model.
    """
    if name not in SHAPES:
        raise ValueError(f"model {name!r} has no shape here; add it to falsifiers/distill/oracle/qwen2.py")
    shape = SHAPES[name]
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        hidden_act=shape.activation,
        max_position_embeddings=shape.positions,
        rms_norm_eps=shape.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rotary_base},
        use_sliding_window=False,
        attention_dropout=0.0,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        model = Qwen2ForCausalLM(config)
    return model.to(dtype=dtype).eval()


@torch.no_grad()
def load(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> None:
    """Copy these weights into the model, by name and shape.

    Raises:
        NotTheModel: a weight is missing, foreign, or of another shape.
    """
    own = dict(model.named_parameters())
    if own.keys() != weights.keys():
        raise NotTheModel(f"not the weights of this model: {sorted(own.keys() ^ weights.keys())}")
    for name, parameter in own.items():
        if parameter.shape != weights[name].shape:
            raise NotTheModel(f"{name} is {tuple(weights[name].shape)}; the model has {tuple(parameter.shape)}")
        parameter.copy_(weights[name])

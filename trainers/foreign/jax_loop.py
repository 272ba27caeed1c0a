"""A loop of JAX: the same model, AdamW, accumulation and a warm-up by hand. It writes the dumps of its steps itself."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of a device that others share

import jax
import numpy as np
import torch
from jax import numpy as jnp
from safetensors.numpy import load_file, save_file

sys.path.append(str(Path(__file__).parents[2]))

from trainers.foreign.common import Batches, Saving, options, rate_factor

jax.config.update("jax_default_matmul_precision", "highest")  # no TF32

Weights = dict[str, Any]
BETAS, EPSILON = (0.9, 0.999), 1e-8


def normed(hidden: Any, scale: Any, epsilon: float) -> Any:
    return hidden * jax.lax.rsqrt((hidden**2).mean(-1, keepdims=True) + epsilon) * scale


def rotated(heads: Any, base: float) -> Any:
    """Rotary positions of [batch, heads, tokens, width]."""
    half = heads.shape[-1] // 2
    angles = jnp.arange(heads.shape[2])[:, None] * base ** (-jnp.arange(half) / half)
    angles = jnp.concatenate([angles, angles], axis=-1)
    turned = jnp.concatenate([-heads[..., half:], heads[..., :half]], axis=-1)
    return heads * jnp.cos(angles) + turned * jnp.sin(angles)


def logits(weights: Weights, tokens: Any, shape: dict[str, Any]) -> Any:
    """A Llama with as many heads of keys as of queries."""
    epsilon, heads = shape["rms_norm_eps"], shape["num_attention_heads"]
    hidden = weights["model.embed_tokens.weight"][tokens]
    batch, length, width = hidden.shape
    hides = jnp.triu(jnp.full((length, length), -jnp.inf), 1)
    for layer in range(shape["num_hidden_layers"]):
        own = {name: weights[f"model.layers.{layer}.{name}.weight"].T for name in LAYER}
        seen = normed(hidden, own["input_layernorm"], epsilon)
        queries, keys, values = (
            (seen @ own[f"self_attn.{part}_proj"]).reshape(batch, length, heads, -1).swapaxes(1, 2) for part in "qkv"
        )
        queries, keys = (rotated(part, shape["rope_parameters"]["rope_theta"]) for part in (queries, keys))
        shares = jax.nn.softmax(queries @ keys.swapaxes(2, 3) / queries.shape[-1] ** 0.5 + hides, axis=-1)
        hidden += (shares @ values).swapaxes(1, 2).reshape(batch, length, width) @ own["self_attn.o_proj"]
        seen = normed(hidden, own["post_attention_layernorm"], epsilon)
        gate = jax.nn.silu(seen @ own["mlp.gate_proj"])
        hidden += (gate * (seen @ own["mlp.up_proj"])) @ own["mlp.down_proj"]
    return normed(hidden, weights["model.norm.weight"], epsilon) @ weights["lm_head.weight"].T


LAYER = [
    *(f"self_attn.{part}_proj" for part in "qkvo"), *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    "input_layernorm", "post_attention_layernorm",
]  # fmt: skip


def loss_of(weights: Weights, tokens: Any, labels: Any, shape: dict[str, Any]) -> Any:
    """The mean cross entropy."""
    shares = jax.nn.log_softmax(logits(weights, tokens, shape), axis=-1)
    return -jnp.take_along_axis(shares, labels[..., None], axis=-1).mean()


@jax.jit
def updated(weights: Weights, slots: list[Weights], gradients: Weights, rate: Any, kept: Any, count: Any) -> Any:
    """AdamW, as Loshchilov and Hutter have it.

    Args:
        kept: the share of a weight that does not decay.
        count: of this step, in float32, as are the corrections of both moments.
    """
    means, squares = slots
    means = {name: BETAS[0] * one + (1 - BETAS[0]) * gradients[name] for name, one in means.items()}
    squares = {name: BETAS[1] * one + (1 - BETAS[1]) * gradients[name] ** 2 for name, one in squares.items()}
    first, second = (1 - jnp.float32(beta) ** count for beta in BETAS)
    weights = {
        name: one * kept - rate * (means[name] / first) / (jnp.sqrt(squares[name] / second) + EPSILON)
        for name, one in weights.items()
    }
    return weights, [means, squares]


class View:
    """The weights as `Saving` looks at a model's."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def named_parameters(self) -> Any:
        return [(name, torch.from_numpy(np.array(one))) for name, one in self.weights.items()]


def train(asked: Any) -> None:
    bug, kept = asked.bug, Path(asked.out) / "state.safetensors"
    shape = json.loads((Path(asked.student) / "config.json").read_text())
    gradient = jax.jit(jax.value_and_grad(partial(loss_of, shape=shape)))
    state = load_file(kept if asked.resume else Path(asked.student) / "model.safetensors")
    weights = {name: jnp.array(one) for name, one in state.items() if "/" not in name}
    forgets = not asked.resume or bug == "resume-without-optimizer"
    slots = {
        slot: {
            name: jnp.zeros_like(one) if forgets else jnp.array(state[f"{slot}/{name}"])
            for name, one in weights.items()
        }
        for slot in ("exp_avg", "exp_avg_sq")
    }
    counted = 0 if forgets else asked.made
    view, factor, data = View(weights), rate_factor(asked.warmup), Batches(asked)
    saving, micro = Saving(view, asked), asked.made * asked.accumulate
    for step in range(asked.made + 1, (asked.stop or asked.steps) + 1):
        parts = [part["input_ids"].numpy() for part in data.step(step, asked)]
        losses, found = zip(*(gradient(weights, part[:, :-1], part[:, 1:]) for part in parts), strict=True)
        divisor = 1 if bug == "not-divided" else len(parts)
        gradients = {name: sum(one[name] for one in found) / divisor for name in weights}
        if asked.clip:
            norm = sum(float((one**2).sum()) for one in gradients.values()) ** 0.5
            gradients = {name: one * min(1.0, asked.clip / (norm + 1e-6)) for name, one in gradients.items()}
        micro += len(parts)
        rate = asked.lr * factor(micro if bug == "schedule-per-micro-batch" else step - 1)
        before = named("before", weights, slots, counted)
        saving.before_step()
        if bug != "skipped-step" or step != 3:
            counted += 1
            kept_share = 1 - rate * asked.decay
            weights, moved = updated(weights, list(slots.values()), gradients, rate, kept_share, np.float32(counted))
            slots = dict(zip(slots, moved, strict=True))
            view.weights = weights
            if asked.dump:
                whole = np.concatenate(parts).astype(np.int64)
                batch = {"input/tokens": whole[:, :-1].copy(), "input/labels": whole[:, 1:].copy()}
                batch |= {f"gradient/{name}": np.array(one) for name, one in gradients.items()}
                tensors = before | named("after", weights, slots, counted) | batch
                Path(asked.dump).mkdir(parents=True, exist_ok=True)
                told = {"step": str(step), "learning_rate": repr(float(rate))}
                save_file(tensors, Path(asked.dump) / f"step-{step:06}.safetensors", metadata=told)
        saving.after_step(sum(map(float, losses)) / len(parts), rate)
    if asked.stop:
        tensors = {f"{slot}/{name}": np.array(one) for slot, own in slots.items() for name, one in own.items()}
        save_file(tensors | {name: np.array(one) for name, one in weights.items()}, kept)
        torch.save({"made": saving.made}, Path(asked.out) / "state.pt")
        return
    save_file({name: one.numpy() for name, one in saving.chosen().items()}, Path(asked.out) / "model.safetensors")
    print(f"{saving.made} steps made")


def named(when: str, weights: Weights, slots: dict[str, Weights], counted: int) -> dict[str, Any]:
    """The tensors of a dump: trainers/dump_steps.py has their names."""
    found = {f"{when}/weight/{name}": np.array(one) for name, one in weights.items()}
    if counted:
        found |= {f"{when}/{slot}/{name}": np.array(one) for slot, own in slots.items() for name, one in own.items()}
        found |= {f"{when}/step/{name}": np.array(counted, np.float32) for name in weights}
    return found


if __name__ == "__main__":
    train(options())

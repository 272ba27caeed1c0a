"""Derivatives of derivatives, functional transforms, hooks and functions with a backward of their own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.various_steps.training import Step, block, made, training


def _gpt2(layers: int = 6, dropout: float = 0.1) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=768, n_layer=layers, n_head=12, use_cache=False, resid_pdrop=dropout, attn_pdrop=dropout,
        embd_pdrop=dropout,
    )  # fmt: skip
    config._attn_implementation = "eager"
    with torch.device("cuda"):
        return GPT2LMHeadModel(config).train()


def _penalized(model: Any, batch: int, length: int) -> Step:
    vectors, ids = made(batch, length, 768, grad=True), torch.randint(50257, (batch, length), device="cuda")

    def loss() -> Tensor:
        found = model(inputs_embeds=vectors, labels=ids).loss
        (slope,) = torch.autograd.grad(found, vectors, create_graph=True)
        total: Tensor = found + slope.square().sum()
        return total

    return training(model, loss)


def double_backward_gpt2() -> Step:
    """A penalty on the gradient of the inputs of GPT-2 with explicit scores."""
    return _penalized(_gpt2(), 4, 512)


def double_backward_gpt2_no_dropout() -> Step:
    """The same without dropout, of longer rows."""
    return _penalized(_gpt2(4, 0.0), 2, 1024)


def double_backward_scores() -> Step:
    """A penalty on the gradient of attention that is written out, with a causal mask and dropout."""
    project, out = nn.Linear(1024, 3072).cuda(), nn.Linear(1024, 1024).cuda()
    x = made(4, 512, 1024, grad=True)
    mask = torch.ones(512, 512, dtype=torch.bool, device="cuda").tril()

    def loss() -> Tensor:
        q, k, v = (part.unflatten(-1, (16, 64)).transpose(1, 2) for part in project(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / 8).masked_fill(~mask, float("-inf")).softmax(-1)
        found = out((F.dropout(scores, 0.1) @ v).transpose(1, 2).flatten(2)).square().mean()
        (slope,) = torch.autograd.grad(found, x, create_graph=True)
        total: Tensor = found + slope.norm()
        return total

    return training([*project.parameters(), *out.parameters()], loss)


def double_backward_math_attention() -> Step:
    """A penalty on the gradient of scaled_dot_product_attention by its scores."""
    project = nn.Linear(1024, 3072).cuda()
    x = made(4, 512, 1024, grad=True)

    def loss() -> Tensor:
        q, k, v = (part.unflatten(-1, (16, 64)).transpose(1, 2) for part in project(x).chunk(3, -1))
        with sdpa_kernel(SDPBackend.MATH):
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean()
        (slope,) = torch.autograd.grad(found, x, create_graph=True)
        total: Tensor = found + slope.square().mean()
        return total

    return training(project, loss)


def double_backward_blocks() -> Step:
    """A penalty on the gradient of blocks with normalization and GELU."""
    model = nn.Sequential(*(block(1024) for _ in range(4))).cuda()
    x = made(4096, 1024, grad=True)

    def loss() -> Tensor:
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope.square().mean()

    return training(model, loss)


def gradients_of_samples() -> Step:
    """Clipped gradients of each sample by vmap and grad."""
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
    x, y = made(256, 512), torch.randint(256, (256,), device="cuda")

    def loss(weights: dict[str, Tensor], tensor: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, weights, (tensor[None],)), label[None])

    def step() -> None:
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        found = vmap(grad(loss), (None, 0, 0))(weights, x, y)
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in found.values()]).norm(dim=0)
        share = (1 / norms).clamp(max=1.0)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.sub_(torch.einsum("b,b...->...", share, found[name]), alpha=1e-3)

    return step


def forward_mode() -> Step:
    """A directional derivative in forward mode, and backward through it."""
    model = nn.Sequential(*(block(1024) for _ in range(4))).cuda()
    x, direction = made(4096, 1024), made(4096, 1024)

    def loss() -> Tensor:
        value, tangent = jvp(model, (x,), (direction,))
        total: Tensor = value.square().mean() + tangent.square().mean()
        return total

    return training(model, loss)


def jacobian() -> Step:
    """A Jacobian by reverse mode of a network with few results."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.Tanh(), nn.Linear(2048, 32)).cuda()
    x = made(512, 1024)
    return training(model, lambda: vmap(jacrev(lambda row: model(row)))(x).square().mean())


def second_derivatives() -> Step:
    """Hessians of a small network at many points."""
    model = nn.Sequential(nn.Linear(48, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
    x = made(512, 48)
    return training(
        model, lambda: vmap(hessian(lambda row: model(row).sum()))(x).diagonal(0, 1, 2).sum(-1).square().mean()
    )


def hessian_vector() -> Step:
    """The product of a Hessian and a vector by vjp of a gradient."""
    model = nn.Sequential(nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 2048)).cuda()
    x = made(4096, 2048)

    def step() -> dict[str, Tensor]:
        weights = {name: weight.detach() for name, weight in model.named_parameters()}

        def loss(given: dict[str, Tensor]) -> Tensor:
            found: Tensor = functional_call(model, given, (x,)).square().mean()
            return found

        slopes, back = vjp(grad(loss), weights)
        found: dict[str, Tensor] = back(slopes)[0]
        return found

    return step


def ensemble() -> Step:
    """Eight networks with stacked weights, run by vmap and trained together."""
    models = [nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda() for _ in range(8)]
    weights, buffers = stack_module_state(models)  # type: ignore[arg-type]
    x = made(2048, 1024)

    def run(own: dict[str, Tensor], kept: dict[str, Tensor], given: Tensor) -> Tensor:
        found: Tensor = functional_call(models[0], (own, kept), (given,))
        return found

    return training(weights.values(), lambda: vmap(run, (0, 0, None))(weights, buffers, x).square().mean())


class _Recomputed(torch.autograd.Function):
    """SwiGLU that keeps its inputs alone."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor) -> Tensor:
        context.save_for_backward(gate, up)
        return F.silu(gate) * up

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = context.saved_tensors
        share = torch.sigmoid(gate)
        by_gate = slopes[0] * up * share * (1 + gate * (1 - share))
        return by_gate, slopes[0] * gate * share


def own_function() -> Step:
    """An activation with a backward of its own."""
    gates, ups, downs = (
        nn.ModuleList(nn.Linear(*shape) for _ in range(4)).cuda()
        for shape in ((1024, 4096), (1024, 4096), (4096, 1024))
    )
    x = made(8192, 1024)

    def loss() -> Tensor:
        hidden = x
        for gate, up, down in zip(gates, ups, downs, strict=True):
            found: Any = _Recomputed.apply(gate(hidden), up(hidden))  # type: ignore[no-untyped-call]
            hidden = hidden + down(found)
        return hidden.square().mean()

    return training([*gates.parameters(), *ups.parameters(), *downs.parameters()], loss)


def retained_graph() -> Step:
    """Two backward passes over one graph, and gradients of the inputs."""
    model = nn.Sequential(*(block(1024) for _ in range(4))).cuda()
    x = made(8192, 1024, grad=True)

    def loss() -> Tensor:
        found = model(x)
        first, second = found.square().mean(), found.abs().mean()
        first.backward(retain_graph=True)
        (slope,) = torch.autograd.grad(second, x, retain_graph=True)
        return second + found.mul(slope.detach()).mean()

    return training(model, loss)


def hooked_gradients() -> Step:
    """Hooks that keep and change gradients of hidden values."""
    layers = nn.ModuleList(block(1024) for _ in range(6)).cuda()
    x = made(8192, 1024)

    def loss() -> Tensor:
        hidden, kept = x, []
        for layer in layers:
            hidden = hidden + layer(hidden)
            hidden.register_hook(lambda slope: slope.clamp(-1, 1))
            hidden.retain_grad()
            kept.append(hidden)
        return hidden.square().mean()

    return training(layers, loss)

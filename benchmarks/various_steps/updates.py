"""Optimizers, averages, quantization, adapters and losses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn

from benchmarks.various_steps.training import Step, block, made, training


def _net(layers: int = 6) -> tuple[nn.Sequential, Tensor]:
    return nn.Sequential(*(block(1024) for _ in range(layers))).cuda(), made(4096, 1024)


def _with(optimizer: Any, **options: Any) -> Step:
    model, x = _net()
    return training(model, lambda: model(x).square().mean(), optimizer, **options)


def fused_adam() -> Step:
    """Adam with the fused kernel and the largest second moments."""
    return _with(torch.optim.Adam, fused=True, amsgrad=True)


def fused_sgd() -> Step:
    """SGD with Nesterov's momentum by the fused kernel."""
    return _with(torch.optim.SGD, fused=True, momentum=0.9, nesterov=True)


def nadam() -> Step:
    """NAdam by foreach operators."""
    return _with(torch.optim.NAdam, decoupled_weight_decay=True, weight_decay=0.1)


def rprop() -> Step:
    """Rprop by foreach operators."""
    return _with(torch.optim.Rprop)


def adamax_and_asgd() -> Step:
    """Adamax for half of the weights, ASGD and Adagrad for the others."""
    model, x = _net()
    every = list(model.parameters())
    kinds: tuple[Any, ...] = (torch.optim.Adamax, torch.optim.ASGD, torch.optim.Adagrad)
    optimizers = [kind(every[place::3]) for place, kind in enumerate(kinds)]

    def step() -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(x).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def capturable_adam() -> Step:
    """Adam whose counters are on the device, with weight decay and no foreach operators."""
    return _with(torch.optim.AdamW, capturable=True, foreach=False)


def second_order() -> Step:
    """L-BFGS with a history of four, which calls the loss again."""
    model, x = _net(2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=4)

    def closure() -> Tensor:
        optimizer.zero_grad()
        found: Tensor = model(x).square().mean()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    return lambda: optimizer.step(closure)  # type: ignore[arg-type]


class CodebookAdam(torch.optim.Optimizer):
    """Adam with moments as places in a table of 256 values, with one scale for each 2,048 numbers."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Look the moments up, update them, and keep the nearest places of the table."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group["lr"])

    def _update(self, parameter: Tensor, rate: float) -> None:
        state = self.state[parameter]
        if not state:
            state["table"] = torch.linspace(-1, 1, 256, device=parameter.device)
        assert parameter.grad is not None
        slope = F.pad(parameter.grad.flatten(), (0, -parameter.numel() % 2048)).view(-1, 2048)
        moments = []
        for name, new, share in (("mean", slope, 0.1), ("square", slope * slope, 0.001)):
            if name not in state:
                state[name] = torch.full_like(new, 128, dtype=torch.uint8)
                state[f"{name}_scale"] = new.abs().amax(1, keepdim=True)
            moment = state["table"][state[name].int()] * state[f"{name}_scale"]
            moment.lerp_(new, share)
            scale = moment.abs().amax(1, keepdim=True).clamp_(min=1e-12)
            state[name] = torch.bucketize(moment / scale, state["table"]).clamp_(max=255).to(torch.uint8)
            state[f"{name}_scale"] = scale
            moments.append(moment)
        change = moments[0] / moments[1].abs().sqrt_().add_(1e-8)
        parameter.sub_(change.flatten()[: parameter.numel()].view_as(parameter), alpha=rate)


def codebook_adam() -> Step:
    """An 8-bit optimizer with a table of values."""
    return _with(CodebookAdam)


def sharpness_aware() -> Step:
    """Two passes in each step: the weights are moved up the slope, and back."""
    model, x = _net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        model(x).square().mean().backward()
        with torch.no_grad():
            slopes = [parameter.grad for parameter in model.parameters()]
            norm = torch.stack(torch._foreach_norm(slopes)).norm()  # type: ignore[arg-type]
            moves = torch._foreach_mul(slopes, 0.05 / norm)  # type: ignore[arg-type, call-overload]
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()

    return step


def whitened_updates() -> Step:
    """Updates by the inverse roots of second moments, by eigenvectors."""
    model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)).cuda()
    x = made(8192, 1024)

    def step() -> None:
        model(x).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2 and parameter.grad is not None:
                    values, vectors = torch.linalg.eigh(parameter.grad @ parameter.grad.T)
                    root = vectors * values.clamp(min=1e-6).rsqrt() @ vectors.T
                    parameter.sub_(root @ parameter.grad, alpha=1e-3)
        model.zero_grad()

    return step


def sparse_gradients() -> Step:
    """A table with sparse gradients and SparseAdam."""
    table = nn.Embedding(1_000_000, 64, sparse=True).cuda()
    ids = torch.randint(1_000_000, (65536,), device="cuda")
    return training(table, lambda: table(ids).square().mean(), torch.optim.SparseAdam)


def sparse_product() -> Step:
    """A product with a sparse matrix of coordinates."""
    places = torch.randint(20000, (2, 400000), device="cuda")
    matrix = torch.sparse_coo_tensor(places, made(400000), (20000, 20000))
    mix = nn.Linear(256, 256).cuda()
    x = made(20000, 256)
    return training(mix, lambda: torch.sparse.mm(matrix, mix(x)).square().mean())


def nested_rows() -> Step:
    """Rows of different lengths as a nested tensor."""
    mix = nn.Linear(256, 256).cuda()
    rows = torch.nested.nested_tensor([made(100, 256), made(300, 256)], layout=torch.jagged)
    return training(mix, lambda: mix(rows).values().square().mean())


def adapted_half() -> Step:
    """Low-rank adapters beside frozen blocks in bfloat16, with dropout on their inputs."""
    base = nn.ModuleList(nn.Linear(2048, 2048, bias=False, dtype=torch.bfloat16) for _ in range(12)).cuda()
    base.requires_grad_(False)
    downs = nn.ModuleList(nn.Linear(2048, 32, bias=False, dtype=torch.bfloat16) for _ in range(12)).cuda()
    ups = nn.ModuleList(nn.Linear(32, 2048, bias=False, dtype=torch.bfloat16) for _ in range(12)).cuda()
    x = made(16384, 2048, dtype=torch.bfloat16)

    def loss() -> Tensor:
        hidden = x
        for wide, down, up in zip(base, downs, ups, strict=True):
            hidden = F.silu(wide(hidden) + 2 * up(down(F.dropout(hidden, 0.05))))
        return hidden.float().square().mean()

    return training([*downs.parameters(), *ups.parameters()], loss)


def quantized_weights() -> Step:
    """Weights of four bits in frozen layers that are decoded in each pass, under adapters."""
    packed = [torch.randint(256, (4096, 2048), device="cuda", dtype=torch.uint8) for _ in range(6)]
    scales = [made(4096, 64, dtype=torch.bfloat16) for _ in range(6)]
    table = torch.linspace(-1, 1, 16, device="cuda", dtype=torch.bfloat16)
    down, up = made(4096, 16, dtype=torch.bfloat16, grad=True), made(16, 4096, dtype=torch.bfloat16, grad=True)
    x = made(4096, 4096, dtype=torch.bfloat16)

    def loss() -> Tensor:
        hidden = x
        for row, scale in zip(packed, scales, strict=True):
            places = torch.stack([row >> 4, row & 15], -1).flatten(1)
            weight = (table[places.long()].unflatten(1, (64, 64)) * scale[..., None]).flatten(1)
            hidden = F.gelu(hidden @ weight.T + hidden @ down @ up)
        return hidden.float().square().mean()

    return training([down, up], loss)


def trained_for_integers() -> Step:
    """Weights rounded to eight bits by fake quantization with a scale for each row."""
    layers = nn.ModuleList(nn.Linear(2048, 2048) for _ in range(4)).cuda()
    zero = torch.zeros(2048, dtype=torch.int32, device="cuda")
    x = made(8192, 2048)

    def loss() -> Tensor:
        hidden = x
        for layer in layers:
            assert isinstance(layer, nn.Linear)
            scale = layer.weight.detach().abs().amax(1) / 127
            weight = torch.fake_quantize_per_channel_affine(layer.weight, scale, zero, 0, -128, 127)
            hidden = F.hardswish(F.linear(hidden, weight, layer.bias))
        return hidden.square().mean()

    return training(layers, loss)


def several_losses() -> Step:
    """Nine losses of torch on the same results."""
    mix = nn.Linear(512, 512).cuda()
    x, wanted = made(16384, 512), torch.rand(16384, 512, device="cuda")
    labels, sign = torch.randint(512, (16384,), device="cuda"), torch.sign(made(16384))

    def loss() -> Tensor:
        found = mix(x)
        total = F.cross_entropy(found, labels, label_smoothing=0.1) + F.huber_loss(found, wanted)
        total = total + F.binary_cross_entropy_with_logits(found, wanted, pos_weight=wanted[0])
        total = total + F.smooth_l1_loss(found, wanted, beta=0.5) + F.l1_loss(found, wanted)
        total = total + F.kl_div(found.log_softmax(-1), wanted) + F.soft_margin_loss(found, wanted)
        total = total + F.cosine_embedding_loss(found, wanted, sign) + F.poisson_nll_loss(found.tanh(), wanted)
        return total + F.triplet_margin_loss(found, wanted, found.flip(0))

    return training(mix, loss)


def transcripts() -> Step:
    """Connectionist temporal classification of long sequences."""
    mix = nn.Linear(512, 1024).cuda()
    x, labels = made(400, 64, 512), torch.randint(1, 1024, (64, 100), device="cuda")
    lengths, wanted = torch.full((64,), 400), torch.full((64,), 100)
    return training(mix, lambda: F.ctc_loss(mix(x).log_softmax(-1), labels, lengths, wanted))


def solved_systems() -> Step:
    """Cholesky factors and solutions of linear systems, with gradients."""
    weight = nn.Parameter(made(64, 256, 256))

    def loss() -> Tensor:
        square = weight @ weight.mT + 256 * torch.eye(256, device="cuda")
        factor = torch.linalg.cholesky(square)
        return torch.cholesky_solve(weight, factor).square().mean() + torch.logdet(square).mean()

    return training([weight], loss)

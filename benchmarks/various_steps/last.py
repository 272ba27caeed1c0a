"""Steps that were written before the probe was mended and predicted only after it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn
from torch.func import functional_call, grad, jacfwd, vmap
from torch.utils.checkpoint import checkpoint

from benchmarks.various_steps.training import Step, block, made, training


def preferences() -> Step:
    """A direct preference loss with a frozen reference, log-probabilities by gather."""
    table, head = nn.Embedding(32000, 768).cuda(), nn.Linear(768, 32000).cuda()
    model, frozen = (nn.Sequential(*(block(768) for _ in range(3))).cuda() for _ in range(2))
    frozen.requires_grad_(False)
    ids = torch.randint(32000, (2, 4, 256), device="cuda")

    def logs(network: nn.Module, tensor: Tensor) -> Tensor:
        found = head(network(table(tensor[:, :-1]))).log_softmax(-1)
        return found.gather(-1, tensor[:, 1:, None]).squeeze(-1).sum(-1)

    def loss() -> Tensor:
        with torch.no_grad():
            known = logs(frozen, ids[0]) - logs(frozen, ids[1])
        return -F.logsigmoid(0.1 * (logs(model, ids[0]) - logs(model, ids[1]) - known)).mean()

    return training([*table.parameters(), *head.parameters(), *model.parameters()], loss)


def meta_learned() -> Step:
    """Two inner updates of the weights, differentiated through."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.Softplus(), nn.Linear(2048, 1024)).cuda()
    x, y = made(8192, 1024), made(8192, 1024)

    def loss() -> Tensor:
        weights: dict[str, Tensor] = dict(model.named_parameters())
        for _ in range(2):
            inner = F.mse_loss(functional_call(model, weights, (x,)), y)
            slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {
                name: weight - 0.1 * slope for (name, weight), slope in zip(weights.items(), slopes, strict=True)
            }
        return F.mse_loss(functional_call(model, weights, (y,)), x)

    return training(model, loss)


def stein_scores() -> Step:
    """Jacobians in forward mode of a score network."""
    model = nn.Sequential(nn.Linear(32, 512), nn.SiLU(), nn.Linear(512, 32)).cuda()
    x = made(1024, 32)
    return training(model, lambda: vmap(jacfwd(lambda row: model(row)))(x).diagonal(0, 1, 2).sum(-1).mean())


def twice_differentiated_normalization() -> Step:
    """A penalty on the gradient through group normalization, softmax and embedding."""
    table, mix = nn.Embedding(5000, 512).cuda(), nn.Linear(512, 512).cuda()
    norm = nn.GroupNorm(8, 512).cuda()
    ids = torch.randint(5000, (16, 256), device="cuda")

    def loss() -> Tensor:
        vectors = table(ids)
        found = norm(mix(vectors).transpose(1, 2)).softmax(1).square().sum()
        (slope,) = torch.autograd.grad(found, vectors, create_graph=True)
        return slope.square().sum()

    return training([*table.parameters(), *mix.parameters(), *norm.parameters()], loss)


def weighted_bags() -> Step:
    """Means and weighted sums of embeddings of bags."""
    table, other = nn.EmbeddingBag(300000, 96, mode="mean").cuda(), nn.EmbeddingBag(300000, 96, mode="sum").cuda()
    rows, weights = torch.randint(300000, (16384, 24), device="cuda"), torch.rand(16384, 24, device="cuda")

    def loss() -> Tensor:
        return (table(rows) * other(rows, per_sample_weights=weights)).square().mean()

    return training([*table.parameters(), *other.parameters()], loss, torch.optim.Adagrad)


def clamped_table() -> Step:
    """An embedding with padding and scaled gradients, and its transpose as the head."""
    table = nn.Embedding(64000, 512, padding_idx=0).cuda()
    ids = torch.randint(64000, (8, 512), device="cuda")

    def loss() -> Tensor:
        return F.cross_entropy((table(ids) @ table.weight.T).flatten(0, 1), ids.flatten(), ignore_index=0)

    return training(table, loss)


def scattered_into_grid() -> Step:
    """Points that are added to the cells of a grid, softened, and read again by take_along_dim."""
    values = made(300000, 16, grad=True)
    cells = torch.randint(64 * 64 * 64, (300000,), device="cuda")

    def loss() -> Tensor:
        grid = torch.zeros(64 * 64 * 64, 16, device="cuda").index_reduce(0, cells, values, "mean", include_self=False)
        soft = F.avg_pool3d(grid.T.view(1, 16, 64, 64, 64), 3, 1, 1).flatten(2)[0]
        return torch.take_along_dim(soft, cells[None], 1).square().mean()

    return training([values], loss)


def soft_order() -> Step:
    """A transport plan by Sinkhorn's iterations in logarithms."""
    mix = nn.Linear(128, 128).cuda()
    x, y = made(2048, 128), made(2048, 128)

    def loss() -> Tensor:
        cost = torch.cdist(mix(x), y).square() / 100
        plan = -cost
        for _ in range(10):
            plan = plan - plan.logsumexp(0, keepdim=True)
            plan = plan - plan.logsumexp(1, keepdim=True)
        return (plan.exp() * cost).sum()

    return training(mix, loss)


def state_space() -> Step:
    """A diagonal recurrence by a scan over chunks with cumulative sums of logarithms."""
    project, out = nn.Linear(512, 1024).cuda(), nn.Linear(512, 512).cuda()
    x = made(8, 1024, 512)

    def loss() -> Tensor:
        value, gate = project(x).chunk(2, -1)
        decay = F.logsigmoid(gate).cumsum(1)
        found = ((value - decay).logcumsumexp(1) + decay).tanh()
        return out(found).square().mean()

    return training([*project.parameters(), *out.parameters()], loss)


def windowed_attention() -> Step:
    """Attention in windows with shared biases, half of them shifted."""
    project, norm = nn.Linear(384, 1152).cuda(), nn.LayerNorm(384).cuda()
    bias = nn.Parameter(made(12, 64, 64))
    x = made(8, 64, 64, 384)

    def loss() -> Tensor:
        hidden = x
        for shift in (0, 4):
            moved = torch.roll(norm(hidden), (shift, shift), (1, 2)).unflatten(1, (8, 8)).unflatten(3, (8, 8))
            rows = project(moved.transpose(2, 3).flatten(0, 2).flatten(1, 2)).unflatten(-1, (3, 12, 32))
            q, k, v = rows.permute(2, 0, 3, 1, 4)
            found = ((q @ k.mT) / 32**0.5 + bias).softmax(-1) @ v
            found = found.transpose(1, 2).flatten(2).unflatten(0, (8, 8, 8)).unflatten(3, (8, 8))
            hidden = hidden + found.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return hidden.square().mean()

    return training([*project.parameters(), *norm.parameters(), bias], loss)


def grouped_queries() -> Step:
    """Attention in bfloat16 with a quarter of the heads for keys, in nested checkpoints."""
    layers = nn.ModuleList(nn.Linear(1024, 1536, dtype=torch.bfloat16) for _ in range(8)).cuda()
    x = made(4, 2048, 1024, dtype=torch.bfloat16)

    def attend(layer: nn.Module, hidden: Tensor) -> Tensor:
        q, k, v = layer(hidden).split((1024, 256, 256), -1)
        q, k, v = (tensor.unflatten(-1, (-1, 64)).transpose(1, 2) for tensor in (q, k, v))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return hidden + found.transpose(1, 2).flatten(2)

    def loss() -> Tensor:
        hidden = x
        for layer in layers:
            hidden = checkpoint(attend, layer, hidden, use_reentrant=False)
        return hidden.float().square().mean()

    return training(layers, loss)


def variational() -> Step:
    """A variational autoencoder with drawn values and a discrete code by straight-through estimates."""
    encode, decode = nn.Linear(2048, 512).cuda(), nn.Linear(256, 2048).cuda()
    codes = nn.Parameter(made(1024, 256))
    x = torch.rand(16384, 2048, device="cuda")

    def loss() -> Tensor:
        mean, spread = encode(x).chunk(2, -1)
        drawn = mean + spread.exp() * torch.randn_like(mean)
        chosen = codes[torch.cdist(drawn.detach(), codes).argmin(-1)]
        found = decode(drawn + (chosen - drawn).detach())
        near = F.mse_loss(drawn.detach(), chosen) + F.mse_loss(drawn, chosen.detach())
        rest = -0.5 * (1 + 2 * spread - mean.square() - (2 * spread).exp()).mean()
        return F.binary_cross_entropy_with_logits(found, x) + near + rest

    return training([*encode.parameters(), *decode.parameters(), codes], loss)


def gated_cells() -> Step:
    """A GRU cell in a loop, checkpointed in chunks."""
    cell = nn.GRUCell(512, 1024).cuda()
    x = made(64, 512, 512)

    def run(part: Tensor, state: Tensor) -> Tensor:
        for parameter in part:
            state = cell(parameter, state)
        return state

    def loss() -> Tensor:
        state = torch.zeros(512, 1024, device="cuda")
        for part in x.split(16):
            state = checkpoint(run, part, state, use_reentrant=False)
        return state.square().mean()

    return training(cell, loss)


def host_optimizer() -> Step:
    """Weights on the GPU whose optimizer lives on the host: gradients go there, weights come back."""
    model = nn.Sequential(*(block(2048) for _ in range(4))).cuda()
    copies = [parameter.detach().cpu().requires_grad_() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(copies, foreach=True)
    x = made(8192, 2048)

    def step() -> None:
        model(x).square().mean().backward()
        for copy, parameter in zip(copies, model.parameters(), strict=True):
            assert parameter.grad is not None
            copy.grad = parameter.grad.to("cpu")
            parameter.grad = None
        optimizer.step()
        with torch.no_grad():
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                parameter.copy_(copy)

    return step


def contrastive_queue() -> Step:
    """A momentum encoder and a queue of negatives that is updated in place."""
    model, slow = (nn.Sequential(*(block(512) for _ in range(4))).cuda() for _ in range(2))
    queue = F.normalize(made(65536, 512), dim=-1)
    x, y = made(4096, 512), made(4096, 512)

    def loss() -> Tensor:
        found = F.normalize(model(x), dim=-1)
        with torch.no_grad():
            for parameter, other in zip(slow.parameters(), model.parameters(), strict=True):
                parameter.lerp_(other, 0.01)
            known = F.normalize(slow(y), dim=-1)
        near = torch.cat([(found * known).sum(-1, keepdim=True), found @ queue.clone().T], 1) / 0.07
        queue[:4096] = known
        return F.cross_entropy(near, torch.zeros(4096, dtype=torch.long, device="cuda"))

    return training(model, loss)


def splats() -> Step:
    """Transparent layers that are sorted by depth and composed by running products."""
    depth, color, share = made(4096, 256, grad=True), made(4096, 256, 3, grad=True), made(4096, 256, grad=True)

    def loss() -> Tensor:
        order = depth.argsort(1)
        alpha = share.sigmoid().gather(1, order)
        light = (1 - alpha).cumprod(1)
        found = (alpha * light)[..., None] * color.gather(1, order[..., None].expand(-1, -1, 3))
        return found.sum(1).square().mean() + (depth.sort(1).values.diff(dim=1)).mean()

    return training([depth, color, share], loss)


def per_sample_hooks() -> Step:
    """Norms of the gradients of samples by hooks and einsum, with weights that follow from them."""
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = made(8192, 1024)
    kept: dict[nn.Module, Any] = {}

    def entered(layer: nn.Module, inputs: Any, _result: Any) -> None:
        kept[layer] = inputs[0].detach()

    def left(layer: nn.Module, _given: Any, slopes: Any) -> None:
        kept[layer] = kept[layer].square().sum(-1) * slopes[0].square().sum(-1)

    for layer in (model[0], model[2]):
        layer.register_forward_hook(entered)
        layer.register_full_backward_hook(left)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum(-1).backward(torch.ones(8192, device="cuda"))
        share = sum(kept.values()).rsqrt().clamp(max=1.0)  # type: ignore[union-attr]
        (model(x).square().mean(-1) * share).mean().backward()
        optimizer.step()

    return step


def orthogonalized() -> Step:
    """Muon's iteration for stacked matrices by baddbmm, written out, with foreach momentum."""
    weights = [nn.Parameter(made(1024, 4096) / 32) for _ in range(8)]
    downs = [nn.Parameter(made(4096, 1024) / 64) for _ in range(8)]
    moments = [torch.zeros_like(weight) for weight in weights]
    x = made(4096, 1024)

    def step() -> None:
        hidden = x
        for up, down in zip(weights, downs, strict=True):
            hidden = hidden + F.relu(hidden @ up).square() @ down
        hidden.square().mean().backward()
        with torch.no_grad():
            torch._foreach_lerp_(moments, [weight.grad for weight in weights], 0.1)  # type: ignore[misc]
            found = torch.stack(moments).bfloat16()
            found = found / found.norm(dim=(-2, -1), keepdim=True)
            for _ in range(5):
                square = found @ found.mT
                found = torch.baddbmm(
                    found, torch.baddbmm(square, square, square, beta=-4.8, alpha=2.0), found, beta=3.4
                )
            torch._foreach_add_(list[Tensor](weights), list(found.float().unbind()), alpha=-0.02)
        for parameter in (*weights, *downs):
            parameter.grad = None

    return step


def interpolated_field() -> Step:
    """Trilinear values of hashed grids of several levels, as in fields of light."""
    tables = nn.ParameterList(made(1 << 19, 2) for _ in range(8))
    mix = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
    points = torch.rand(1 << 17, 3, device="cuda")

    def loss() -> Tensor:
        found = []
        for level, table in enumerate(tables):
            scaled = points * 16 * 1.5**level
            low = scaled.floor()
            share = scaled - low
            total = torch.zeros(len(points), 2, device="cuda")
            for corner in range(8):
                move = torch.tensor([corner & 1, corner >> 1 & 1, corner >> 2], device="cuda")
                place = (low.long() + move) * torch.tensor([1, 2654435761, 805459861], device="cuda")
                row = (place[:, 0] ^ place[:, 1] ^ place[:, 2]) % (1 << 19)
                weight = torch.where(move.bool(), share, 1 - share).prod(-1, keepdim=True)
                total = total + weight * table[row]
            found.append(total)
        return mix(torch.cat(found, -1)).square().mean()

    return training([*tables, *mix.parameters()], loss)


def mixed_losses_of_a_vocabulary() -> Step:
    """The cross-entropy of an odd vocabulary in bfloat16 with a z-loss, by chunks of tokens."""
    head = nn.Linear(1024, 50257, bias=False, dtype=torch.bfloat16).cuda()
    body = nn.Sequential(*(block(1024) for _ in range(2))).cuda().bfloat16()
    x, labels = made(8192, 1024, dtype=torch.bfloat16), torch.randint(50257, (8192,), device="cuda")

    def part(hidden: Tensor, wanted: Tensor) -> Tensor:
        logits = head(hidden).float()
        return F.cross_entropy(logits, wanted, reduction="sum") + 1e-4 * logits.logsumexp(-1).square().sum()

    def loss() -> Tensor:
        parts = zip(body(x).split(2048), labels.split(2048), strict=True)
        total: Tensor = sum(
            (checkpoint(part, *inputs, use_reentrant=False) for inputs in parts), torch.zeros((), device="cuda")
        )
        return total / len(x)

    return training([*head.parameters(), *body.parameters()], loss, torch.optim.AdamW, fused=True)


def clipped_samples() -> Step:
    """Gradients of samples of attention by vmap, in chunks."""
    mix = nn.Linear(256, 768).cuda()
    x = made(64, 128, 256)

    def loss(weights: dict[str, Tensor], tensor: Tensor) -> Tensor:
        q, k, v = functional_call(mix, weights, (tensor,)).unflatten(-1, (3, 4, 64)).permute(1, 2, 0, 3)
        return ((q @ k.mT / 8).softmax(-1) @ v).square().mean()

    def step() -> None:
        weights = {name: weight.detach() for name, weight in mix.named_parameters()}
        found = vmap(grad(loss), (None, 0), chunk_size=16)(weights, x)
        with torch.no_grad():
            for name, weight in mix.named_parameters():
                norms = found[name].flatten(1).norm(dim=1)
                weight.sub_((found[name] / norms.view(-1, *[1] * weight.dim())).mean(0))

    return step

"""Indices, sorts, scans and reductions over places that data names."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn

from benchmarks.various_steps.training import Step, made, training


def _ids(most: int, *shape: int) -> Tensor:
    return torch.randint(most, shape, device="cuda")


def scattered_maxima() -> Step:
    """Maxima and means of messages over the nodes of a graph by scatter_reduce."""
    mix = nn.Linear(128, 128).cuda()
    x, source, target = made(20000, 128), _ids(20000, 200000), _ids(20000, 200000)

    def loss() -> Tensor:
        messages = mix(x)[source]
        places = target[:, None].expand(-1, 128)
        empty = torch.zeros_like(x)
        most = empty.scatter_reduce(0, places, messages, "amax", include_self=False)
        mean = empty.scatter_reduce(0, places, messages, "mean", include_self=False)
        return (most + mean).square().mean()

    return training(mix, loss)


def scattered_products() -> Step:
    """Products and sums by scatter_reduce with the values that were there."""
    weight, start = made(500000, 32, grad=True), made(50000, 32, grad=True)
    target = _ids(50000, 500000)[:, None].expand(-1, 32)

    def loss() -> Tensor:
        product = start.scatter_reduce(0, target, weight.sigmoid(), "prod")
        return (product + start.scatter_reduce(0, target, weight, "sum")).square().mean()

    return training([weight, start], loss)


def messages() -> Step:
    """Sums of messages over a graph by scatter_add and gather."""
    mix, score = nn.Linear(256, 256).cuda(), nn.Linear(256, 1).cuda()
    x, source, target = made(50000, 256), _ids(50000, 300000), _ids(50000, 300000)

    def loss() -> Tensor:
        hidden = mix(x)
        weight = score(hidden[source] * hidden[target]).exp()
        total = torch.zeros(50000, 1, device="cuda").index_add(0, target, weight)
        share = weight / total.gather(0, target[:, None])
        found = torch.zeros_like(hidden).scatter_add(0, target[:, None].expand(-1, 256), share * hidden[source])
        return found.square().mean()

    return training([*mix.parameters(), *score.parameters()], loss)


def accumulated_index_put() -> Step:
    """Values that index_put adds at places that repeat, and at a slice."""
    weight = made(4096, 2048, grad=True)
    rows, columns = _ids(4096, 500000), _ids(2048, 500000)
    values = made(500000, grad=True)

    def loss() -> Tensor:
        found = weight.index_put((rows, columns), values, accumulate=True)
        found = found.index_fill(1, columns[:100], 0.0).index_copy(0, torch.arange(64, device="cuda"), found[64:128])
        return found.square().mean()

    return training([weight, values], loss)


def indexed_rows() -> Step:
    """Rows that are chosen by lists of places in two dimensions, whose gradient adds."""
    table = made(512, 512, 256, grad=True)
    first, second = _ids(512, 100000), _ids(512, 100000)
    return training([table], lambda: table[first, second].tanh().square().mean())


def scans() -> Step:
    """Running sums, products and log-sum-exps."""
    weight = made(512, 8192, grad=True)

    def loss() -> Tensor:
        share = weight.sigmoid()
        found = share.cumsum(-1).square().mean() + share.add(0.5).cumprod(0).mean()
        return found + weight.logcumsumexp(-1).mean() + weight.cummax(0).values.mean()

    return training([weight], loss)


def linear_attention() -> Step:
    """Attention without softmax, by running sums of outer products in chunks."""
    project = nn.Linear(512, 1536).cuda()
    x = made(4, 1024, 512)

    def loss() -> Tensor:
        q, k, v = (part.unflatten(-1, (8, 64)).transpose(1, 2) for part in project(x).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = (k.unsqueeze(-1) * v.unsqueeze(-2)).unflatten(2, (16, 64)).sum(3).cumsum(2)
        inside = (q.unflatten(2, (16, 64)) @ k.unflatten(2, (16, 64)).mT).tril() @ v.unflatten(2, (16, 64))
        return (q.unflatten(2, (16, 64)) @ state + inside).square().mean()

    return training(project, loss)


def sorts() -> Step:
    """Losses on sorted values and on their order."""
    weight = made(1024, 16384, grad=True)

    def loss() -> Tensor:
        ordered, places = weight.sort(-1, descending=True)
        ranks = places.argsort(-1)
        return (ordered * ranks).square().mean() + weight.flatten().sort().values.diff().abs().mean()

    return training([weight], loss)


def sorts_of_integers() -> Step:
    """Orders of integers and of half precision, along two dimensions."""
    weight = made(4096, 4096, dtype=torch.bfloat16, grad=True)
    ids = _ids(1 << 20, 1 << 24)

    def loss() -> Tensor:
        order = ids.argsort(stable=True)
        return weight.sort(0).values.float().mean() + weight.flatten()[order].float().square().mean()

    return training([weight], loss, torch.optim.SGD)


def largest_of_many() -> Step:
    """A sparse layer that keeps the 64 largest of its values, and the largest of rows of a vocabulary."""
    encode, decode = nn.Linear(1024, 32768).cuda(), nn.Linear(32768, 1024).cuda()
    x = made(2048, 1024)

    def loss() -> Tensor:
        values, places = encode(x).topk(64, -1)
        sparse = torch.zeros(2048, 32768, device="cuda").scatter(-1, places, values.relu())
        return F.mse_loss(decode(sparse), x)

    return training([*encode.parameters(), *decode.parameters()], loss)


def order_statistics() -> Step:
    """Medians, quantiles, counts and histograms."""
    weight = made(2048, 4096, grad=True)
    ids = _ids(1000, 4 << 20)

    def loss() -> Tensor:
        found = weight.median(-1).values.mean() + weight.quantile(0.9, dim=0).mean()
        found = found + weight.kthvalue(100, -1).values.mean() + weight.max(0).values.mean()
        return found + torch.bincount(ids, minlength=1000).float().std() + torch.histc(weight.detach(), 100).mean()

    return training([weight], loss)


def sampled_policy() -> Step:
    """Actions drawn from a distribution, with rewards, entropy and a ratio of probabilities."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 512)).cuda()
    x, reward = made(65536, 256), made(65536)

    def loss() -> Tensor:
        chances = torch.distributions.Categorical(logits=model(x), validate_args=False)
        action = chances.sample()  # type: ignore[no-untyped-call]
        logs = chances.log_prob(action)  # type: ignore[no-untyped-call]
        gumbel = F.gumbel_softmax(model(x), hard=True)
        ratio = (logs - logs.detach()).exp()
        entropy = chances.entropy().mean()  # type: ignore[no-untyped-call]
        total: Tensor = -torch.minimum(ratio * reward, ratio.clamp(0.8, 1.2) * reward).mean() - entropy
        return total + gumbel.square().mean()

    return training(model, loss)


def masked_pairs() -> Step:
    """A loss on all pairs of rows with masks, where and triangles."""
    mix = nn.Linear(256, 64).cuda()
    x, labels = made(4096, 256), _ids(100, 4096)

    def loss() -> Tensor:
        found = F.normalize(mix(x), dim=-1)
        near = found @ found.T / 0.1
        same = (labels[:, None] == labels).triu(1)
        near = near.masked_fill(torch.eye(4096, dtype=torch.bool, device="cuda"), -1e9)
        logs = near - near.logsumexp(-1, keepdim=True)
        return -torch.where(same, logs, 0.0).sum() / same.sum().clamp(min=1)

    return training(mix, loss)


def distances() -> Step:
    """Distances of all pairs of rows, and of the pairs of one set."""
    mix = nn.Linear(128, 128).cuda()
    x, y = made(4096, 128), made(8192, 128)

    def loss() -> Tensor:
        near = torch.cdist(mix(x), mix(y)).min(-1).values.mean()
        return near + torch.cdist(mix(x), mix(y), p=1.0).mean() + F.pdist(mix(x)[:2048]).mean()

    return training(mix, loss)


def routed_by_einsum() -> Step:
    """A mixture of experts with places of fixed capacity, filled by one-hot products."""
    router = nn.Linear(512, 16).cuda()
    up, down = made(16, 512, 2048, grad=True), made(16, 2048, 512, grad=True)
    x = made(4096, 512)

    def loss() -> Tensor:
        shares = router(x).softmax(-1)
        share, chosen = shares.max(-1)
        one_hot = F.one_hot(chosen, 16)
        place = (one_hot.cumsum(0) * one_hot).sum(-1) - 1
        at = F.one_hot(place.clamp(max=511), 512).float() * (place < 512)[:, None]
        dispatch = torch.einsum("ne,nc->nec", one_hot.float(), at)
        inner = torch.einsum("nec,nd->ecd", dispatch, x)
        found = torch.bmm(F.gelu(torch.bmm(inner, up)), down)
        return torch.einsum("nec,ecd,n->nd", dispatch, found, share).square().mean()

    return training([*router.parameters(), up, down], loss)


def rolled_and_repeated() -> Step:
    """Values that are rolled, flipped, repeated, stacked and taken apart."""
    weight = made(256, 128, 256, grad=True)

    def loss() -> Tensor:
        parts = torch.stack([weight.roll(1, 1), weight.flip(0), weight.tile(1, 1, 1)]).unbind(0)
        found = torch.cat([parts[0], parts[1].repeat_interleave(2, 1), parts[2].repeat(1, 1, 2)[..., :256]], 1)
        return found.unfold(1, 4, 2).tanh().mean() + found.diagonal(0, 0, 1).square().mean()

    return training([weight], loss)


def selected_by_mask() -> Step:
    """Values that a mask selects, whose number depends on data."""
    weight = made(4096, 4096, grad=True)
    return training([weight], lambda: weight[weight > 0].square().mean())


def distinct_values() -> Step:
    """The distinct values of identifiers."""
    table = nn.Embedding(100000, 64).cuda()
    ids = _ids(100000, 200000)
    return training(table, lambda: table(ids.unique()).square().mean())

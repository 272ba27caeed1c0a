"""F-PD-ROUTING-001: at each position, k sites of a chunk are routed: k is uniform in 1 to n, the subset is uniform."""

import math

import torch
from torch import Tensor

from falsifiers.param_decomp.statistics import chi_square_p
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import Watched, drawn_steps, resolve, watched_step
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Train, and test the routes of each chunk's site calls: a shorter chunk draws k up to its own number of sites."""
    drawn: dict[tuple[str, ...], list[Tensor]] = {}
    for step in drawn_steps(trial):
        watched = watched_step(trial, trial.subject, step)
        for chunk, samples in _routes(watched, trial.subject).items():
            drawn.setdefault(chunk, []).append(torch.stack(samples))
        trial.step(step, **watched.reported)
    with trial.subject_fault():
        if not drawn:
            raise ValueError("no forward of a step masks a site")
        chunks = [torch.stack(steps) for steps in drawn.values()]  # each [steps, samples, rows, sequence, sites]
    tests = [_tests(routed) for routed in chunks]
    trial.measure(
        positions=min(routed[..., 0].numel() for routed in chunks),
        sites=max(map(len, drawn)),
        last_sites=len(list(drawn)[-1]),
        mean_share=float(max(chunks, key=lambda routed: routed.shape[-1]).double().mean()),
        unrouted_positions=sum(int((~routed.any(dim=-1)).sum()) for routed in chunks),
        **{name: (min if name.endswith("_p") else max)(test[name] for test in tests) for name in tests[0]},
    )
    resolve(trial, trial.subject)


def _routes(watched: Watched, subject: Trainer) -> dict[tuple[str, ...], list[Tensor]]:
    """The routes [rows, sequence, sites] of each sample, by chunk."""
    routes: dict[tuple[str, ...], list[Tensor]] = {}
    for forward in watched.forwards:
        maskings = {call.site: call.masking for call in forward.calls}
        chunk = tuple(name for name in subject.sites if name in maskings)
        everywhere = [torch.ones(maskings[name].delta.shape, dtype=torch.bool) for name in chunk]
        routed = [maskings[name].route for name in chunk]
        if chunk:
            sample = [every if route is None else route for route, every in zip(routed, everywhere, strict=True)]
            routes.setdefault(chunk, []).append(torch.stack(sample, dim=-1))
    return routes


def _tests(routed: Tensor) -> dict[str, float]:
    """The statistics of a chunk's routes [steps, samples, rows, sequence, sites]."""
    flat = routed.flatten(0, -2).double()
    sites = flat.shape[1]
    k = flat.sum(dim=1)
    counts = torch.bincount(k.long(), minlength=sites + 1)[1:].double()
    expected = len(flat) / sites
    axes = {"steps": 0, "samples": 1, "rows": 2, "positions": 3}
    return {
        "k_p": chi_square_p(float(((counts - expected) ** 2 / expected).sum()), sites - 1),
        "subset_p": _subset_p(flat, k, sites),
        "neighbours_z": _neighbours_z(flat, k, sites),
        **{f"alike_{name}": _alike(routed, axis) for name, axis in axes.items()},
    }


def _alike(routed: Tensor, axis: int) -> float:
    """The share of positions whose sites are routed as one place before along an axis."""
    pairs = routed.shape[axis] - 1
    same = routed.narrow(axis, 1, pairs) == routed.narrow(axis, 0, pairs)
    return float(same.all(dim=-1).double().mean())


def _subset_p(flat: Tensor, k: Tensor, sites: int) -> float:
    """The p-value of how often each site is routed, for each k.

    Counts of N subsets of size k have the covariance a (I - J / n) with a = N k (n - k) / (n (n - 1)), so their squared
    deviations over a are chi-square with n - 1 degrees of freedom.
    """
    statistic, freedom = 0.0, 0
    for size in range(1, sites):
        chosen = flat[k == size]
        if len(chosen):
            scale = len(chosen) * size * (sites - size) / (sites * (sites - 1))
            statistic += float(((chosen.sum(dim=0) - len(chosen) * size / sites) ** 2).sum() / scale)
            freedom += sites - 1
    return chi_square_p(statistic, freedom) if freedom else 0.0


def _neighbours_z(flat: Tensor, k: Tensor, sites: int) -> float:
    """The number of neighbouring sites routed together, in standard deviations from that of uniform subsets."""
    pairs = (flat * flat.roll(1, dims=1)).sum(dim=1) - k * (k - 1) / (sites - 1)
    deviation = float(pairs.std()) / math.sqrt(len(pairs))
    mean = float(pairs.mean())
    return abs(mean) / deviation if deviation > 0 else (math.inf if mean else 0.0)

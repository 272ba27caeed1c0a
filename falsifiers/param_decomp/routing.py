"""F-PD-ROUTING-001: at each position, k sites of a chunk are routed: k is uniform in 1 to n, the subset is uniform."""

import math

import torch
from torch import Tensor

from falsifiers.param_decomp.statistics import chi_square_p
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, resolve, watched_step
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Train, and test the routes of the chunk's site calls."""
    drawn = []
    for step in drawn_steps(trial):
        watched = watched_step(trial, trial.subject, step)
        (forward,) = [forward for forward in watched.forwards if forward.calls]
        calls = {call.site: call.masking for call in forward.calls}
        shape = next(iter(calls.values())).delta.shape
        everywhere = torch.ones(shape, dtype=torch.bool)
        routes = [calls[name].route for name in trial.subject.sites]
        drawn.append(torch.stack([everywhere if route is None else route for route in routes], dim=-1))
        trial.step(step, **watched.told)
    routed = torch.stack(drawn)  # [steps, rows, sequence, sites]
    flat = routed.flatten(0, 2).double()
    sites = flat.shape[1]
    k = flat.sum(dim=1)
    counts = torch.bincount(k.long(), minlength=sites + 1)[1:].double()
    expected = len(flat) / sites
    trial.measure(
        positions=len(flat),
        sites=sites,
        unrouted_positions=int((k == 0).sum()),
        mean_share=float(k.mean() / sites),
        k_p=chi_square_p(float(((counts - expected) ** 2 / expected).sum()), sites - 1),
        subset_p=_subset_p(flat, k, sites),
        neighbours_z=_neighbours_z(flat, k, sites),
        alike_positions=float((routed[:, :, 1:] == routed[:, :, :-1]).all(dim=-1).double().mean()),
        alike_rows=float((routed[:, 1:] == routed[:, :-1]).all(dim=-1).double().mean()),
        alike_steps=float((routed[1:] == routed[:-1]).all(dim=-1).double().mean()),
    )
    resolve(trial, trial.subject)


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

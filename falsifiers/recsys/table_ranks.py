"""A table over two ranks and its models: with NCCL on two GPUs, or with gloo on the CPU."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from falsifiers.param_decomp.ranks import run_of_ranks
from falsifiers.recsys.dynamic_tables import Recipe, Tables
from falsifiers.recsys.oracle.dynamic_table import Model, owner_of
from falsifiers.recsys.table_watch import TableErrors, Watch, chance_of, drawn_keys, laid
from harness import NotMeasured, Trial

RANKS = 2
_OFTEN = 300
"""More than eight bits count."""


def of_ranks(trial: Trial[Tables]) -> TableErrors:
    """Train two ranks, each with its own keys, and return the findings of both."""
    if trial.device.startswith("cuda") and torch.cuda.device_count() < RANKS:
        raise NotMeasured("two ranks need two GPUs")
    folder = trial.workspace / "ranks"
    work = partial(_errors_of, trial.subject, trial.seed, folder)
    with trial.subject_fault():
        findings = run_of_ranks(RANKS, work, trial.device, folder)
    for other in findings[1:]:
        findings[0].add(other)
    return findings[0]


def _errors_of(subject: Tables, seed: int, folder: Path, device: str) -> TableErrors:
    """Run as one of the ranks."""
    rank, recipe = dist.get_rank(), Recipe(4, 1, 2, "lfu", "adagrad", seed=seed)
    watch = watched(subject, recipe, device, rank, keys=60, steps=3, words=("ranks", seed))
    watch.dump(folder / f"dump-{rank}.safetensors")
    return watch.errors


def watched(
    subject: Tables, recipe: Recipe, device: str, rank: int, *, keys: int, steps: int, words: Sequence[object]
) -> Watch:
    """Train in a rank of the default process group, and compare its rows with the models of all ranks.

    In the second step the first rank looks one key up very often, and in the third the last rank looks nothing up.
    """
    chance = chance_of(*words)
    models = [Model(recipe) for _ in range(RANKS)]
    table = subject.sharded(recipe, device)
    watch = Watch(nullcontext, recipe, device, chance, table, models[rank])
    pool = drawn_keys(chance, 2 * keys)
    for step in range(steps):
        keys_by_rank = [chance.choices(pool, k=keys + keys // 3 * number) for number in range(RANKS)]
        keys_by_rank[0] += [pool[0]] * (_OFTEN if step == 1 else 0)
        keys_by_rank[-1] = [] if step == 2 else keys_by_rank[-1]
        generator = torch.Generator().manual_seed(chance.randrange(1 << 32))
        slopes = [
            torch.randint(-256, 257, (len(own_keys), recipe.dim), generator=generator) / 256.0
            for own_keys in keys_by_rank
        ]
        rows = table.train(laid(keys_by_rank[rank], step, device))
        for model, owned, _ in _shares(models, keys_by_rank, slopes):
            model.train(owned)
        watch.compare(keys_by_rank[rank], rows.detach(), models)
        (rows * slopes[rank].to(device)).sum().backward()
        for model, owned, steep in _shares(models, keys_by_rank, slopes):
            model.update(owned, steep)
        watch.count()
        rest = chance.sample(pool, keys)[rank:]
        watch.compare(rest, table.evaluate(torch.tensor(rest, device=device)), models)
    return watch


def _shares(
    models: list[Model], keys_by_rank: list[list[int]], slopes: list[Tensor]
) -> Iterator[tuple[Model, list[int], Tensor]]:
    """Yield each owner's model with the keys and gradients that all ranks send to it."""
    keys, steep = [key for own_keys in keys_by_rank for key in own_keys], torch.cat(slopes)
    for owner, model in enumerate(models):
        owned = [place for place, key in enumerate(keys) if owner_of(key, RANKS) == owner]
        yield model, [keys[place] for place in owned], steep[owned]

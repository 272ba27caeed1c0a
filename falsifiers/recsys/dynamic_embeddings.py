"""F-DYNEMB-LOOKUP-001, -EVICT-001, -REHASH-001 and -DUMP-001: a dynamic table equals its model at every step.

Each scenario trains a table of its own: lookups with inserts, gradients through autograd, evaluations in between. After
the first scenario with an error, the others are skipped.
"""

import copy
from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch

from falsifiers.recsys.dynamic_tables import Recipe, Scoring, Tables
from falsifiers.recsys.oracle.dynamic_table import BUCKET, keys_in_bucket
from falsifiers.recsys.table_ranks import of_ranks
from falsifiers.recsys.table_watch import TableErrors, Watch, chance_of, drawn_keys
from harness import Trial

HOT = 21
"""How often NVIDIA's test looks up its hot keys."""
_LARGEST = (1 << 63) - 1

Scenario = Callable[[], TableErrors]


def falsify_lookups(trial: Trial[Tables]) -> None:
    """Train on keys of the whole range, on two ranks, through a cache, and on too many keys for a bucket."""
    batch, dim, buckets = (trial.parameters[name] for name in ("batch", "dim", "buckets"))

    def of_all_kinds(**more: Any) -> TableErrors:
        chance = chance_of(trial.seed, more)
        watch = Watch.of(trial, Recipe(dim, **more), chance)
        pool = drawn_keys(chance, 3 * batch)
        for step in range(trial.parameters["lookups"]):
            known = (0, 1, 2, 1)[step % 4] * batch
            keys = [*pool[known : known + batch], *chance.choices(pool[: known + batch], k=batch // 3)]
            watch.train(chance.sample(keys, len(keys)), -step if watch.recipe.scoring == "custom" else None)
            watch.evaluate(chance.sample(pool, batch))
        watch.train([], 0 if watch.recipe.scoring == "custom" else None)
        watch.evaluate([])
        watch.evaluate(pool)
        return watch.errors

    def crowded() -> TableErrors:
        """Look up more keys of one bucket than it has slots, in the batch that doubles the table."""
        chance = chance_of(trial.seed, "crowded")
        watch = Watch.of(trial, Recipe(dim, 1, 2, "step", "adagrad", eps=0.5, initial="constant", spread=0.5), chance)
        crowd = keys_in_bucket(1, 2, BUCKET + 9, trial.seed)
        watch.train(crowd[:60])
        watch.train([*crowd, *drawn_keys(chance, 9)])
        watch.evaluate(crowd)
        return watch.errors

    _run(
        trial,
        [
            lambda: of_ranks(trial),
            lambda: of_all_kinds(buckets=1, most_buckets=buckets),
            crowded,
            lambda: of_all_kinds(
                buckets=buckets, most_buckets=buckets, scoring="lfu", optimizer="adam", initial="normal",
                spread=0.75, eps=0.125, cached_buckets=max(1, buckets // 4),
            ),
            lambda: of_all_kinds(
                buckets=buckets // 2, most_buckets=buckets // 2, scoring="custom", optimizer="rowwise_adagrad",
                rate=0.125, eps=0.5, cached_buckets=max(1, buckets // 4),
            ),
        ],
        {
            "value_errors": "value_error", "rows_of_absent": "absent", "survivors": "survivors",
            "wrong_sizes": "sizes", "wrong_scores": "scores",
        },
    )  # fmt: skip


def falsify_evictions(trial: Trial[Tables]) -> None:
    """Fill tables beyond their capacity with each kind of score."""

    def filled(scoring: Scoring, buckets: int) -> TableErrors:
        chance, slots = chance_of(trial.seed, scoring), buckets * BUCKET
        watch = Watch.of(trial, Recipe(trial.parameters["dim"], buckets, buckets, scoring), chance)
        keys = drawn_keys(chance, 2 * slots)
        hot = keys[: slots // 8]
        cold = cycle((-_LARGEST, -_LARGEST - 1, 0, -1, 1, _LARGEST - 1))  # float64 cannot tell all of them apart

        def score(hot: bool = False) -> int | None:
            return None if scoring != "custom" else _LARGEST if hot else next(cold)

        watch.train(keys[: slots // 2], score())
        watch.train(chance.sample(hot * HOT, len(hot) * HOT), score(hot=True))
        for start in range(slots // 4, 2 * slots, slots // 4):  # so few that no batch needs the slots of hot keys
            watch.train([*keys[start : start + slots // 4], *chance.sample(keys[slots // 2 : slots], 5)], score())
            watch.evaluate(keys)
        if scoring in ("lfu", "custom"):
            watch.lose(hot)
        return watch.errors

    buckets = trial.parameters["buckets"]
    _run(
        trial,
        [
            lambda: filled("lfu", buckets),
            lambda: filled("custom", buckets // 2),
            lambda: filled("timestamp", buckets // 2),
            lambda: filled("step", buckets // 2),
        ],
        {"survivors": "survivors", "hot_keys_lost": "hot", "wrong_sizes": "sizes", "value_errors": "value_error"},
    )


def falsify_growth(trial: Trial[Tables]) -> None:
    """Fill tables to exactly half, then by one more key, until they have reached their largest size."""

    def grown(**more: Any) -> TableErrors:
        chance = chance_of(trial.seed, more)
        recipe = Recipe(trial.parameters["dim"], 1, trial.parameters["buckets"], **more)
        watch = Watch.of(trial, recipe, chance)
        keys = drawn_keys(chance, recipe.most_buckets * BUCKET // 2 + 40)
        buckets, known = 1, 0
        while buckets <= recipe.most_buckets:
            for upto in (buckets * BUCKET // 2, buckets * BUCKET // 2 + 1):
                new = keys[known:upto]
                watch.train([*new, *new[:3], *chance.sample(keys[:known], min(known, 20))])
                known = max(known, upto)
                watch.dump(trial.workspace / "table.safetensors")
            buckets *= 2
        watch.train(keys)
        watch.evaluate(keys)
        watch.dump(trial.workspace / "table.safetensors")
        return watch.errors

    _run(
        trial,
        [
            lambda: grown(scoring="step", optimizer="adam"),
            lambda: grown(scoring="lfu", optimizer="adagrad", cached_buckets=1),
        ],
        {
            "wrong_capacities": "capacities", "wrong_sizes": "sizes", "value_errors": "value_error",
            "state_errors": "state_error", "wrong_scores": "scores", "lost_keys": "keys",
        },
    )  # fmt: skip


def falsify_dumps(trial: Trial[Tables]) -> None:
    """Train, dump, load elsewhere, and train both once more; dump the keys since a score, and replay them."""
    batch, buckets = trial.parameters["batch"], trial.parameters["buckets"]

    def dumped(**more: Any) -> TableErrors:
        chance = chance_of(trial.seed, more)
        watch = Watch.of(trial, Recipe(trial.parameters["dim"], buckets, buckets, **more), chance)
        pool = drawn_keys(chance, 2 * buckets * BUCKET)
        files = [trial.workspace / f"{name}.safetensors" for name in ("first", "again", "since", "then", "other")]
        for step in range(trial.parameters["lookups"]):
            watch.train(chance.choices(pool[step * batch // 4 :], k=batch))
        whole = watch.dump(files[0])
        if not watch.errors.clean:
            return watch.errors
        scores = sorted({entry.score for entry in watch.model.entries.values()})
        for score in {scores[0], scores[len(scores) // 2], scores[-1]}:
            watch.dump_since(files[2], score, whole)
        other = watch.loaded(trial, files[0])
        other.same(whole, other.dump(files[1]))
        more_keys = chance.choices(pool, k=batch)
        other.chance = copy.deepcopy(chance)
        for each in (watch, other):
            each.train(more_keys)
            each.evaluate(pool)
        then = watch.dump(files[3])
        other.same(then, other.dump(files[4]), but=("scores",))
        watch.errors.add(other.errors)
        return watch.errors

    def replayed() -> TableErrors:
        """Load a table that has grown; then the keys since its last score over it, while nothing is evicted."""
        chance = chance_of(trial.seed, "replayed")
        watch = Watch.of(trial, Recipe(trial.parameters["dim"], 1, 2, "custom", "adam"), chance)
        first, since, then = (trial.workspace / f"{name}.safetensors" for name in ("first", "since", "then"))
        pool = drawn_keys(chance, BUCKET)
        watch.train(pool[:90], -1)
        watch.dump(first)
        watch.train(pool[60:], 0)
        watch.dump_since(since, 0, watch.dump(then))
        other = watch.loaded(trial, first)
        with other.fault():
            other.table.load(since)
        other.errors = TableErrors()
        other.count()
        other.evaluate(pool)
        other.dump(then)
        watch.errors.add(other.errors)
        return watch.errors

    _run(
        trial,
        [
            lambda: dumped(scoring="lfu", optimizer="adagrad"),
            lambda: dumped(scoring="timestamp", optimizer="adam", cached_buckets=max(1, buckets // 4)),
            lambda: dumped(scoring="step", optimizer="rowwise_adagrad"),
            replayed,
        ],
        {
            "wrong_keys": "keys", "value_errors": "value_error", "state_errors": "state_error",
            "wrong_scores": "scores", "wrong_increments": "increments", "changed_tensors": "bits",
            "wrong_sizes": "sizes",
        },
    )  # fmt: skip


def _run(trial: Trial[Tables], scenarios: list[Scenario], names: dict[str, str]) -> None:
    """Run scenarios until one finds an error, and record the findings by name."""
    findings: list[TableErrors] = []
    for scenario in scenarios:
        findings.append(scenario())
        if not findings[-1].clean:
            break
    trial.measure(
        scenarios=len(findings), **{name: [getattr(finding, of) for finding in findings] for name, of in names.items()}
    )
    trial.resolve(device=torch.device(trial.device).type)

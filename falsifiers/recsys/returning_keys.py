"""F-DYNEMB-LOOKUP-001: the scenarios of `dynamic_embeddings`, and keys that return while their old rows are cached.

Random keys seldom cover that: a cache that is smaller than a batch holds no row of the batch before. Here scores and
times are opposed, for any sizes and seed. The table evicts the keys of the lowest score, which entered the cache last;
for their successors, the cache drops the rows that entered first.
"""

from falsifiers.recsys.dynamic_embeddings import falsify_lookups as falsify_kinds
from falsifiers.recsys.dynamic_tables import Recipe, Tables
from falsifiers.recsys.oracle.dynamic_table import BUCKET, keys_in_bucket
from falsifiers.recsys.table_watch import Watch, chance_of
from harness import Trial

_HALF = BUCKET // 2
_MORE = BUCKET // 4


def falsify_lookups(trial: Trial[Tables]) -> None:
    """Train tables of all kinds; then fill a bucket, evict keys that are cached, and look them up again."""
    falsify_kinds(trial)
    dim, buckets = trial.parameters["dim"], trial.parameters["buckets"]
    recipe = Recipe(
        dim, buckets, buckets, "custom", "adagrad", cached_buckets=max(1, buckets // 4)
    )  # fmt: skip
    watch = Watch.of(trial, recipe, chance_of(trial.seed, "returning"))
    keys = keys_in_bucket(0, buckets, BUCKET + _MORE, trial.seed)  # which share a bucket of the cache, too
    watch.train(keys[:_HALF], 1)
    watch.train(keys[_HALF:BUCKET], 0)
    watch.train(keys[BUCKET:], 2)
    returning = sorted(watch.model.evicted)
    watch.evaluate(returning)
    watch.train(returning, 3)
    watch.evaluate(keys)
    trial.measure(rows_of_evicted=watch.errors.absent, returned_error=watch.errors.value_error)

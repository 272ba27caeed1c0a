"""F-DYNEMB-EVICT-001, -REHASH-001 and -DUMP-001: the scenarios of `dynamic_embeddings`, and rarer ones.

Keys with many occurrences, whose gradients a subject may sum in pieces, in a batch of many other keys; a step after a
later lookup, which has moved the rows; and a dump of a host whose clock is ahead.
"""

from contextlib import suppress
from dataclasses import replace

import torch
from safetensors.torch import load_file, save_file

from falsifiers.recsys.dynamic_embeddings import falsify_dumps as falsify_usual_dumps
from falsifiers.recsys.dynamic_embeddings import falsify_evictions as falsify_usual_evictions
from falsifiers.recsys.dynamic_embeddings import falsify_growth as falsify_usual_growth
from falsifiers.recsys.dynamic_tables import Recipe, Tables
from falsifiers.recsys.oracle.dynamic_table import BUCKET, keys_in_bucket, mixed, turned
from falsifiers.recsys.table_watch import TableErrors, Watch, chance_of, drawn_keys
from harness import Trial

_COUNTS = (31, 32, 33, 64, 65, 127)
"""Occurrences of keys, around powers of two, which are block sizes."""
_HOUR = 3600 * 10**9


def falsify_evictions(trial: Trial[Tables]) -> None:
    """Fill tables beyond their capacity; then one with very frequent keys; check that keys are not modified."""
    falsify_usual_evictions(trial)
    chance, counts = chance_of(trial.seed, "frequent"), (trial.parameters["most"], *_COUNTS)
    watch = Watch.of(trial, Recipe(trial.parameters["dim"], 1, 1, "lfu"), chance)
    keys = sorted(drawn_keys(chance, BUCKET + trial.parameters["distinct"]), key=turned)
    frequent = keys[-len(counts) :]  # the last groups of a batch, whose numbers are the largest
    watch.repeat(frequent[:3])
    watch.train(frequent)
    requested = [*keys, *(key for key, count in zip(frequent, counts, strict=True) for _ in range(count - 1))]
    watch.train(chance.sample(requested, len(requested)))
    more = drawn_keys(chance, BUCKET)
    for start in range(0, BUCKET, BUCKET // 4):
        watch.train(more[start : start + BUCKET // 4])
    watch.evaluate([*frequent, *more, *keys[:BUCKET]])
    watch.lose(frequent)
    watch.dump(trial.workspace / "table.safetensors")
    requested = more[: BUCKET // 8]
    given = torch.tensor(requested, device=watch.device)
    with watch.fault():
        for batch in (given, given.flip(0).neg()):
            watch.table.train(batch)
    unscored = Watch.of(trial, Recipe(trial.parameters["dim"], 1, 1, "custom"), chance)
    with unscored.fault(), suppress(ValueError):
        unscored.table.train(given)
        watch.errors.scores += 1  # the score is not given, and none is known
    trial.measure(
        frequent_error=watch.errors.value_error, frequent_wrong=_wrong(watch.errors),
        keys_changed=given.tolist() != requested,
    )  # fmt: skip


def falsify_growth(trial: Trial[Tables]) -> None:
    """Fill tables to their largest size; then double one before a step, and an unbalanced one."""
    falsify_usual_growth(trial)
    findings = TableErrors()
    for cached in (0, 1):
        chance = chance_of(trial.seed, "behind", cached)
        recipe = Recipe(trial.parameters["dim"], 1, 2, "lfu", "adam", cached_buckets=cached)
        watch = Watch.of(trial, recipe, chance)
        keys = drawn_keys(chance, BUCKET - 8)
        early = keys[: BUCKET // 2]
        with watch.fault():
            rows = watch.table.train(torch.tensor([0, *early], device=watch.device)[1:])  # at an odd address
        watch.model.train(early)
        watch.compare(early, rows.detach())
        watch.train(keys[BUCKET // 4 :])
        watch.train(early)
        slopes = torch.randint(-256, 257, rows.shape, generator=torch.Generator().manual_seed(trial.seed)) / 256.0
        with watch.fault():
            (rows * slopes.to(watch.device)).sum().backward()
        watch.model.update(early, slopes)
        watch.evaluate(keys)
        watch.dump(trial.workspace / "table.safetensors")
        findings.add(watch.errors)
    findings.add(_behind_an_equal_lookup(trial))
    watch = Watch.of(trial, Recipe(trial.parameters["dim"], 2, 4, "lfu"), chance_of(trial.seed, "lopsided"))
    full = keys_in_bucket(0, 4, BUCKET + 1, trial.seed)  # a bucket of two that is one of four, too
    watch.repeat(full[:3])
    watch.train(full[:BUCKET])
    watch.train([key for key in range(20) if mixed(key) % 4][:1])
    watch.evaluate(full)
    watch.dump(trial.workspace / "table.safetensors")
    findings.add(watch.errors)
    trial.measure(behind_error=max(findings.value_error, findings.state_error), behind_wrong=_wrong(findings))


def _behind_an_equal_lookup(trial: Trial[Tables]) -> TableErrors:
    """Make the step of a lookup after another one of as many keys. It may be refused; else it must be right."""
    recipe = Recipe(trial.parameters["dim"], 2, 2, "lfu", "adam")
    watch = Watch.of(trial, recipe, chance_of(trial.seed, "equal lookups"))
    keys = drawn_keys(watch.chance, 40)
    early = keys[:20]
    with watch.fault():
        rows = watch.table.train(torch.tensor(early, device=watch.device))
    watch.model.train(early)
    watch.compare(early, rows.detach())
    watch.train(keys[20:])
    slopes = torch.randint(-256, 257, rows.shape, generator=torch.Generator().manual_seed(trial.seed)) / 256.0
    with watch.fault(), suppress(RuntimeError):
        (rows * slopes.to(watch.device)).sum().backward()
        watch.model.update(early, slopes)
    watch.evaluate(keys)
    watch.dump(trial.workspace / "table.safetensors")
    return watch.errors


def _loaded_by_a_smaller_table(trial: Trial[Tables]) -> TableErrors:
    """Load a few keys of four buckets, whose rows are one number, into a table of at most two, and of longer rows.

    The table of longer rows must refuse them without a change: it is empty, and trains as a new one.
    """
    recipe, path = Recipe(1, 4, 4, "step", "adagrad"), trial.workspace / "table.safetensors"
    watch = Watch.of(trial, recipe, chance_of(trial.seed, "smaller"))
    keys = drawn_keys(watch.chance, 30)
    watch.train(keys)
    watch.dump(path)
    other = Watch.of(trial, replace(recipe, buckets=1, most_buckets=2), watch.chance)
    with other.fault():
        other.table.load(path)
    other.model.buckets, other.model.entries = 2, watch.model.entries
    other.evaluate(keys)
    other.dump(trial.workspace / "loaded.safetensors")
    unfit = Watch.of(trial, replace(recipe, dim=3, buckets=1), watch.chance)
    with unfit.fault(), suppress(Exception):
        unfit.table.load(path)
        watch.errors.keys += 1  # nothing of it fits
    unfit.evaluate(keys)
    unfit.train(keys)
    unfit.evaluate(keys)
    unfit.dump(path)
    for each in (other, unfit):
        watch.errors.add(each.errors)
    return watch.errors


def falsify_dumps(trial: Trial[Tables]) -> None:
    """Train, dump, load elsewhere, and continue; then load times in the future."""
    falsify_usual_dumps(trial)
    chance = chance_of(trial.seed, "ahead")
    watch = Watch.of(trial, Recipe(trial.parameters["dim"], 1, 1, "timestamp"), chance)
    keys, path = drawn_keys(chance, BUCKET + BUCKET // 4), trial.workspace / "table.safetensors"
    watch.dump(path)
    with watch.fault():
        watch.table.load(path)  # without keys it changes nothing
    watch.train(keys[: BUCKET // 2])
    watch.train(keys[BUCKET // 4 : BUCKET])
    watch.dump(path)
    if watch.errors.clean:
        dumped = load_file(path)
        save_file({**dumped, "scores": dumped["scores"] + _HOUR}, path)
        other = watch.loaded(trial, path)
        other.train(keys[BUCKET // 2 : BUCKET - 8])
        other.train(keys[BUCKET:])
        other.evaluate(keys)
        other.dump(path)
        watch.errors.add(other.errors)
    watch.errors.add(_loaded_by_a_smaller_table(trial))
    trial.measure(ahead_wrong=max(_wrong(watch.errors), int(not watch.errors.clean)))


def _wrong(findings: TableErrors) -> int:
    """Return how many keys, scores and sizes are wrong."""
    return (
        findings.absent
        + findings.survivors
        + findings.sizes
        + findings.capacities
        + findings.scores
        + findings.keys
        + findings.hot
    )

"""Evidence as pandas DataFrames: `harness.load`, `harness.clauses`, `harness.mutants` and `harness.steps`.

    runs = harness.load("evidence")
    runs[runs["verdict"] == "FAIL"][["id", "reason", "path"]]

Each function takes a bundle, or a folder with bundles at any depth below it. The columns `id` and `run` join the
tables. Bundles may come from other_processes: files are read within limits, must have their formats, and must be as the
manifest says. `harness.verify` does more: it judges the measurements again.

A bundle that cannot be read is a row of `load` with the reason in the column `problem`. The other functions leave it
out. An empty folder gives a table without rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.base.plugins import installation
from harness.base.schemas import Problem
from harness.base.vocabulary import Fate
from harness.contract.ratio import ratios
from harness.evidence.bundle import Bundle, BundleError, Series
from harness.evidence.bundle_layout import CONTRACT, METRICS, OBSERVATION, RECORD, TELEMETRY
from harness.evidence.untrusted import TooLarge
from harness.evidence.verification import find_bundles, no_folder
from harness.judging.record import Record
from harness.report.messages import bound_text, reason_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["clauses", "load", "mutants", "steps"]

Row = Mapping[str, Any]
T = TypeVar("T")

_RUNS = (
    "id", "run", "issue", "spec", "title", "started", "verdict", "reason", "proven", "profile", "device", "device_type",
    "subject", "overrides", "seed", "seconds", "trial_seconds", "waited_seconds", "mutants", "killed",
    "peak_memory_bytes", "peak_gpu_memory_bytes", "commit", "dirty", "harness", "contract_sha256", "command", "path",
    "problem",
)  # fmt: skip
_CLAUSES = ("id", "run", "clause", "outcome", "value", "keyword", "limit", "unit", "ratio", "bound", "reason")
_MUTANTS = ("id", "run", "mutant", "defect", "subject", "fate", "violates", "failed", "seconds", "reason")
_STEPS = ("id", "run", "step", "seconds")
_LARGEST = 2.0**53
"""The limit of a step's number. NaN and infinities are not below it."""


def load(path: str | Path) -> pd.DataFrame:
    """Return all evidence at or below a path, one row for each run, the oldest first.

    Columns:
        id, run: the claim, and the name of the run, which is that of the bundle's folder.
        issue, spec, title: of the claim.
        started: the time, in UTC.
        verdict: PASS, FAIL, NOT_MEASURED or VOID; `reason` says why, and is empty for a proven PASS.
        proven: whether mutants show that the falsifier can fail.
        profile, device, device_type: "full" or "reduced"; the name of the device; "cpu" or "cuda".
        subject, overrides, seed: what ran, and the parameters that differ from the profile's, as a dict.
        seconds, trial_seconds: wall-clock time of the claim's imports and trials, and of the subject's trial.
        waited_seconds: how long trials waited for a device that others held.
        mutants, killed: how many mutants the contract has, and how many were killed.
        peak_memory_bytes, peak_gpu_memory_bytes: the highest sample of the subject's resident memory and of its memory
            on the GPU; NaN if it was not sampled.
        commit, dirty: the revision of the project, and whether the checkout had other changes.
        harness, contract_sha256, command: the version of the harness, the contract's digest, how to repeat the run.
        path: the bundle's folder.
        problem: why the bundle cannot be read. Then only `run` and `path` have values. Empty if it can.

    Raises:
        NotADirectoryError: the path is no folder. The text says how to unpack an archive.
        ModuleNotFoundError: pandas is not installed.
    """
    rows: list[Row] = []
    for bundle in _bundles(path):
        try:
            rows.append(_run(bundle.path, _record(bundle)))
        except (BundleError, TooLarge) as error:
            rows.append({"run": bundle.path.name, "path": str(bundle.path), "problem": str(error)})
    table = _table(rows, _RUNS)
    for name in ("peak_memory_bytes", "peak_gpu_memory_bytes"):
        table[name] = table[name].astype(float)
    return table.sort_values(["started", "run"], na_position="last", ignore_index=True)


def clauses(path: str | Path) -> pd.DataFrame:
    """Return the clauses of every run at or below a path, one row each, in the order of their contracts.

    Columns:
        id, run: as in `load`.
        clause, outcome: its id, and PASS, FAIL or NOT_MEASURED.
        value: what decided: a number, a text, a list; for a rule, a dict of all that it reads.
        keyword, limit: the bound as data, such as "maximum" and 1e-05; for a rule "rule" and its text.
        unit: of value and limit; empty if there is none.
        ratio: of value and limit: above 1 the clause is violated, and near 1 it holds just so. NaN for a clause without
            a threshold, such as a type.
        bound: the bound in words.
        reason: why the outcome is not PASS; empty for PASS.

    Raises:
        NotADirectoryError, ModuleNotFoundError: as for `load`.
    """
    table = _table(_rows(path, _clauses), _CLAUSES)
    table["ratio"] = table["ratio"].astype(float)
    return table


def mutants(path: str | Path) -> pd.DataFrame:
    """Return the mutants of every run at or below a path, one row each, in the order of their contracts.

    Columns:
        id, run: as in `load`.
        mutant, defect, subject: its id, what is wrong with it, and its entry point.
        fate: killed, survived, misattributed, inconclusive, not run or interrupted.
        violates, failed: the clauses that it must fail, and those that it failed, as tuples.
        seconds: wall-clock time of its trial; NaN if it did not run.
        reason: why it was not killed; empty if it was.

    Raises:
        NotADirectoryError, ModuleNotFoundError: as for `load`.
    """
    table = _table(_rows(path, _mutants), _MUTANTS)
    table["seconds"] = table["seconds"].astype(float)
    return table


def steps(path: str | Path) -> pd.DataFrame:
    """Return the recorded steps of every run's subject at or below a path, one row each. Long series are thinned.

    Columns:
        id, run: as in `load`.
        step: its number, from 1.
        seconds: since the trial started.
        one column for each number that a falsifier records at a step, such as `loss`, in the falsifier's unit; NaN
            where a run has none.
        the last sample of the machine before the step: `rss_bytes`, `gpu_process_memory_bytes`, `cpu_percent`,
            `gpu_power_watts` and so on (see `telemetry.csv` in the documentation of bundles); NaN if there is none.
            Samples are a quarter of a second apart or more, so short steps share one.

    Raises:
        NotADirectoryError, ModuleNotFoundError: as for `load`.
    """
    pd, tables = _pandas(), []
    for bundle in _bundles(path):
        try:
            record = _record(bundle)
            steps = _sealed(bundle, METRICS, lambda bundle: bundle.metrics)
            samples = _sealed(bundle, TELEMETRY, lambda bundle: bundle.telemetry)
        except (BundleError, TooLarge):
            continue
        joined = _joined(steps, samples)
        for place, (name, value) in enumerate((("id", record.id), ("run", record.run))):
            joined.insert(place, name, value)
        tables.append(joined)
    tables = [table for table in tables if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(_STEPS))


def _joined(steps: Series, samples: Series) -> pd.DataFrame:
    """Return the steps, each with the last sample before it. A value that a falsifier recorded goes before a sample.

    Rows without a number or a time are left out, and columns with the names of ours. Neither is in a bundle of ours.
    """
    pd = _pandas()
    rows = pd.DataFrame({**steps.columns}, dtype=float).drop(columns=["id", "run"], errors="ignore")
    rows = rows[(rows["step"].abs() < _LARGEST) & (rows["seconds"].abs() < _LARGEST)].astype({"step": "int64"})
    new = [name for name in samples.columns if name == "seconds" or name not in {*rows.columns, "id", "run"}]
    machine = pd.DataFrame({name: samples.columns[name] for name in new}, dtype=float)
    machine = machine[machine["seconds"].abs() < _LARGEST]
    joined = pd.merge_asof(rows.sort_values("seconds"), machine.sort_values("seconds"), on="seconds")
    return joined.sort_values("step", ignore_index=True, kind="stable")


def _run(path: Path, record: Record) -> Row:
    peaks = record.series["telemetry"].get("peaks", {})
    return {
        **{name: getattr(record, name) for name in _RUNS if hasattr(record, name)},
        "started": datetime.fromisoformat(record.started),
        "verdict": str(record.verdict),
        "reason": reason_text.of(record.reason),
        "device": record.device.name,
        "device_type": record.device.type,
        "subject": record.judged,
        "overrides": dict(record.overrides),
        "mutants": len(record.mutants),
        "killed": record.fates[Fate.KILLED],
        "peak_memory_bytes": peaks.get("rss_bytes"),
        "peak_gpu_memory_bytes": peaks.get("gpu_process_memory_bytes"),
        "commit": record.commit["revision"],
        "dirty": record.commit["dirty"],
        "harness": record.harness["version"],
        "contract_sha256": record.contract_digest,
        "path": str(path),
        "problem": "",
    }


def _clauses(record: Record, bundle: Bundle) -> Iterator[Row]:
    near = bundle.attempt(_ratios, {})
    for clause in record.clauses:
        yield {
            "clause": clause.id,
            "outcome": str(clause.outcome),
            "value": clause.value,
            "keyword": "" if clause.bound is None else clause.bound.keyword,
            "limit": None if clause.bound is None else clause.bound.limit,
            "unit": clause.unit,
            "ratio": near.get(clause.id),
            "bound": bound_text.of(clause.bound, clause.unit),
            "reason": reason_text.of(clause.reason),
        }


def _ratios(bundle: Bundle) -> Mapping[str, float]:
    contract = _sealed(bundle, CONTRACT, lambda bundle: bundle.contract)
    seen = _sealed(bundle, OBSERVATION, lambda bundle: bundle.observation)
    return ratios(contract, seen.measurements, seen.parameters, seen.device)


def _mutants(record: Record, bundle: Bundle) -> Iterator[Row]:
    for mutant in record.mutants:
        yield {
            "mutant": mutant.id,
            "defect": mutant.defect,
            "subject": mutant.subject,
            "fate": str(mutant.fate),
            "violates": mutant.violates,
            "failed": mutant.failed,
            "seconds": mutant.seconds,
            "reason": reason_text.of(mutant.reason),
        }


def _rows(path: str | Path, rows: Callable[[Record, Bundle], Iterable[Row]]) -> Iterator[Row]:
    for bundle in _bundles(path):
        try:
            record = _record(bundle)
        except (BundleError, TooLarge):
            continue
        for row in rows(record, bundle):
            yield {"id": record.id, "run": record.run, **row}


def _bundles(path: str | Path) -> Iterator[Bundle]:
    folder = Path(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} {no_folder(folder)}")
    yield from map(Bundle, find_bundles([folder]))


def _record(bundle: Bundle) -> Record:
    return _sealed(bundle, RECORD, lambda bundle: bundle.record)


def _sealed(bundle: Bundle, name: str, part: Callable[[Bundle], T]) -> T:
    """Return a part of a bundle, from a file that is as it was sealed."""
    if bundle.manifest.get(name) != bundle.digest(name):
        raise BundleError(name, [Problem("", "is not the sealed file; harness verify says more")])
    return part(bundle)


def _table(rows: Iterable[Row], columns: tuple[str, ...]) -> pd.DataFrame:
    return _pandas().DataFrame(list(rows), columns=list(columns))


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"evidence as a DataFrame needs pandas: {installation('analysis')}") from error

"""What changed between two bundles of one claim. The bundles are read with limits; they are not verified.

difference = compare(Path("evidence/…/a"), Path("evidence/…/b"), noise={})
for change in difference.environment:
    print(change.where, change.before, change.after)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from harness.base import strictjson
from harness.contract.clauses import ClauseResult
from harness.evidence import index
from harness.evidence.bundle import Bundle, BundleError
from harness.evidence.bundle_layout import CONTRACT, ENVIRONMENT, OBSERVATION, RECORD
from harness.evidence.index import Measurement
from harness.evidence.measurement_history import TRIAL_SECONDS, Noise, Shift
from harness.evidence.verification import find_bundles, no_folder
from harness.judging.record import Record

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Change", "Difference", "DifferenceError", "Moved", "SeriesChange", "compare"]

T = TypeVar("T")
_ABOUT = ("verdict", "reason", "proven", "profile", "device", "overrides", "seed", "resolved", "harness", "commit")
"""Fields of the record about the run as a whole."""
_ALWAYS_OTHERWISE = ("/host/disk_free_bytes", "/device/uuid")
"""Places that always differ between two runs, even on machines of the same kind."""


class DifferenceError(ValueError):
    """Two bundles cannot be compared; the message says why."""


@final
@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs; None means that it has no value."""

    where: str
    before: Any
    after: Any


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """A measurement of both runs, and whether the later value is outside the noise of the earlier runs."""

    name: str
    unit: str
    before: float | None
    after: float | None
    noise: Noise
    shift: Shift | None
    """The shift of the later value; None if there is no later value."""


@final
@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A column that differs between the step series."""

    name: str
    steps: int
    """The number of steps for which both have a value."""
    first: int | None
    """The first step at which they differ."""
    largest: float | None
    """The largest difference at one step."""
    at: int | None
    """The step of the largest difference."""
    last_before: float | None
    last_after: float | None


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that changed, part by part; an empty part is the same in both."""

    claim: str
    before: Path
    after: Path
    run: tuple[Change, ...]
    environment: tuple[Change, ...]
    contract: tuple[Change, ...]
    parameters: tuple[Change, ...]
    sources: tuple[Change, ...]
    clauses: tuple[Change, ...]
    """Clauses whose outcome changed, or that only one bundle has. Each has an outcome, a value and a bound."""
    mutants: tuple[Change, ...]
    """Mutants whose fate changed, or that failed on other clauses."""
    measurements: tuple[Moved, ...]
    """Measurements that differ."""
    same: int
    """The number of measurements that are exactly equal."""
    series: tuple[SeriesChange, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        plain = {**asdict(self), "before": str(self.before), "after": str(self.after)}
        tagged: dict[str, Any] = strictjson.tag_nonfinite(plain)
        return tagged


def compare(before: Path, after: Path, noise: Mapping[str, Noise]) -> Difference:
    """Compare two bundles.

    Args:
        noise: for each measurement, the noise of the earlier runs in the later bundle's series.

    Raises:
        DifferenceError: one bundle cannot be read, or the bundles are of different claims.
    """
    first, second = Bundle(before), Bundle(after)
    one, other = (_read(bundle, lambda bundle: bundle.record) for bundle in (first, second))
    if one.id != other.id:
        raise DifferenceError(f"{before} is of {one.id}, and {after} of {other.id}; name two runs of one claim")
    files = {name: (_json(first, name), _json(second, name)) for name in (ENVIRONMENT, CONTRACT, OBSERVATION)}
    measurements, same = _moved(one, other, noise)
    return Difference(
        claim=one.id,
        before=before,
        after=after,
        run=tuple(_changes(_about(one), _about(other))),
        environment=tuple(_changes(*files[ENVIRONMENT])),
        contract=tuple(_changes(*files[CONTRACT])),
        parameters=tuple(_changes(*(document.get("parameters") for document in files[OBSERVATION]))),
        sources=tuple(_changes(dict(one.sources), dict(other.sources))),
        clauses=tuple(_clauses(one, other)),
        mutants=tuple(_mutants(one, other)),
        measurements=measurements,
        same=same,
        series=tuple(_series(first, second)),
    )


def _about(record: Record) -> dict[str, Any]:
    document = record.to_json()
    return {name: document[name] for name in _ABOUT}


def _read(bundle: Bundle, part: Callable[[Bundle], T]) -> T:
    try:
        return part(bundle)
    except BundleError as error:
        if not bundle.path.is_dir():
            raise DifferenceError(f"{bundle.path} {no_folder(bundle.path)}") from error
        below = find_bundles([bundle.path]) if error.file == RECORD else []
        such = f", such as {below[0]}" if below and below[0] != bundle.path else ""
        raise DifferenceError(f"{bundle.path}: {error}; name a whole bundle{such}") from error


def _json(bundle: Bundle, name: str) -> Any:
    document = _read(bundle, lambda bundle: bundle.document(name))
    if not isinstance(document, dict):
        raise DifferenceError(f"{bundle.path / name} is no JSON object")
    return document


def _changes(before: Any, after: Any, where: str = "") -> Iterator[Change]:
    """Yield the places at which two JSON values differ. List items that have an id are matched by id."""
    before, after = _by_id(before), _by_id(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(before.get(name), after.get(name), f"{where}/{name}")
    elif not _same(before, after) and where not in _ALWAYS_OTHERWISE:
        yield Change(where.removeprefix("/"), before, after)


def _by_id(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "id" in item for item in value):
        named = {str(item["id"]): item for item in value}
        return named if len(named) == len(value) else value
    return value


def _same(one: Any, other: Any) -> bool:
    """Whether two values have the same JSON: NaN equals NaN, 1 differs from true, and a list equals a tuple."""
    return strictjson.dumps(strictjson.tag_nonfinite(one)) == strictjson.dumps(strictjson.tag_nonfinite(other))


def _clauses(before: Record, after: Record) -> Iterator[Change]:
    then, now = ({clause.id: clause for clause in record.clauses} for record in (before, after))
    for name in dict.fromkeys([*then, *now]):
        a, b = then.get(name), now.get(name)
        if a is None or b is None or a.outcome is not b.outcome:
            yield Change(name, a and _told(a), b and _told(b))


def _told(clause: ClauseResult) -> dict[str, Any]:
    bound = None if clause.bound is None else clause.bound.to_json()
    return {"outcome": str(clause.outcome), "value": clause.value, "bound": bound}


def _mutants(before: Record, after: Record) -> Iterator[Change]:
    one, other = ({mutant.id: mutant for mutant in record.mutants} for record in (before, after))
    for name in dict.fromkeys([*one, *other]):
        told = [
            None if mutant is None else {"fate": str(mutant.fate), "failed": sorted(mutant.failed)}
            for mutant in (one.get(name), other.get(name))
        ]
        if told[0] != told[1]:
            yield Change(name, *told)


def _moved(before: Record, after: Record, noise: Mapping[str, Noise]) -> tuple[tuple[Moved, ...], int]:
    one, other = (
        {**index.measurements_of(record), TRIAL_SECONDS: Measurement(record.trial_seconds, "s")}
        for record in (before, after)
    )
    found, same = [], 0
    for name in dict.fromkeys([*one, *other]):
        a, b = one.get(name), other.get(name)
        if a is not None and b is not None and _same(a.value, b.value):
            same += 1
            continue
        known = noise.get(name, Noise.of([]))
        unit = next(measured.unit for measured in (b, a) if measured is not None)
        then, now = (None if measured is None else measured.value for measured in (a, b))
        found.append(Moved(name, unit, then, now, known, None if now is None else known.shift(now)))
    return tuple(found), same


def _series(before: Bundle, after: Bundle) -> Iterator[SeriesChange]:
    one, other = _metrics(before), _metrics(after)
    both = one.add_suffix("\0before").join(other.add_suffix("\0after"), how="inner")
    for name in dict.fromkeys([*one.columns, *other.columns]):
        if name == "seconds":
            continue  # the time at which a step ended: it differs between any two runs
        ends = [_last(table, name) for table in (one, other)]
        if name not in one.columns or name not in other.columns:
            yield SeriesChange(name, 0, None, None, None, *ends)
            continue
        pair = both[[f"{name}\0before", f"{name}\0after"]].dropna()
        apart = (pair.iloc[:, 0] - pair.iloc[:, 1]).abs()
        differing = [
            (float(distance), step) for step, distance in zip(pair.index.tolist(), apart, strict=True) if distance
        ]
        if differing:
            largest, at = max(differing, key=lambda one: one[0])
            yield SeriesChange(name, len(pair), min(step for _, step in differing), largest, at, *ends)
        elif len(one) != len(other):
            yield SeriesChange(name, len(pair), None, None, None, *ends)


def _metrics(bundle: Bundle) -> pd.DataFrame:
    """Return the step series, indexed by step. Columns without numbers are left out."""
    import pandas as pd

    columns = _read(bundle, lambda bundle: bundle.metrics).columns
    table = pd.DataFrame({name: list(column) for name, column in columns.items()}, dtype="float64")
    return table.drop_duplicates("step", keep="last").set_index("step").dropna(axis="columns", how="all")


def _last(table: pd.DataFrame, name: str) -> float | None:
    values = table[name].dropna().tolist() if name in table.columns else []
    return float(values[-1]) if values else None

"""What changed between two bundles."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.evidence import difference
from harness.evidence.difference import Change, DifferenceError, compare
from harness.evidence.measurement_history import Noise, Shift
from tests.contracts import document, healthy
from tests.evidence.factory import DEFECTIVE, rewrite, sealed, set_at


def test_a_bundle_and_itself(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    difference = compare(bundle, bundle, {})
    plain = difference.to_json()
    for part in ("run", "environment", "contract", "parameters", "sources", "clauses", "mutants", "measurements"):
        assert plain[part] == []
    assert (plain["series"], plain["same"]) == ([], 5)


def test_every_part(tmp_path: Path) -> None:
    """Each change has its place, and the values before and after."""
    before = sealed(tmp_path, run="a", rows=3)
    after = sealed(
        tmp_path,
        run="b",
        rows=3,
        measurements=healthy(returned=2, largest=9.5),
        mutants={**DEFECTIVE, "stops-early": {}},
        overrides={"steps": 4},
        sources={"falsifiers/demo/sorting.py": "d" * 64, "falsifiers/demo/new.py": "e" * 64},
    )
    rewrite(after, "environment.json", set_at("software", "distributions", "click", "9.0"))
    rewrite(after, "contract.json", set_at("rules", 0, "message", "other words"))
    metrics = (after / "metrics.csv").read_text().splitlines()
    assert metrics[2].endswith("1.5")
    metrics[2] = metrics[2][:-3] + "1.75"
    (after / "metrics.csv").write_text("\n".join(metrics) + "\n")

    difference = compare(before, after, {"largest": Noise.of([3.0, 3.1, 2.9, 3.0, 3.05])})
    assert Change("verdict", "PASS", "FAIL") in difference.run
    assert Change("overrides/steps", None, 4) in difference.run
    assert difference.environment == (Change("software/distributions/click", "8.1.7", "9.0"),)
    rule = document()["rules"][0]
    assert difference.contract == (Change("rules/nothing-lost/message", rule["message"], "other words"),)
    assert difference.parameters == (Change("steps", 3, 4),)
    assert difference.sources == (
        Change("falsifiers/demo/sorting.py", "a" * 64, "d" * 64),
        Change("falsifiers/demo/new.py", None, "e" * 64),
    )
    assert [(change.where, change.before["outcome"], change.after["outcome"]) for change in difference.clauses] == [
        ("nothing-lost", "PASS", "FAIL")
    ]
    (mutant,) = (change for change in difference.mutants if change.where == "stops-early")
    assert (mutant.before["fate"], mutant.after["fate"]) == ("killed", "survived")
    moved = {one.name: one for one in difference.measurements}
    assert set(moved) == {"returned", "largest"}
    assert (moved["largest"].before, moved["largest"].after, moved["largest"].shift) == (3.0, 9.5, Shift.ABOVE)
    assert moved["returned"].shift is Shift.UNKNOWN
    (series,) = difference.series
    assert (series.name, series.steps, series.first, series.at, series.largest) == ("loss", 3, 1, 1, 0.25)
    json.dumps(difference.to_json(), allow_nan=False)


def test_series_of_unequal_length_and_columns(tmp_path: Path) -> None:
    """Rows and columns of only one side are named. The common ones are compared."""
    before, after = sealed(tmp_path, run="a", rows=3), sealed(tmp_path, run="b", rows=5)
    (series,) = compare(before, after, {}).series
    assert (series.steps, series.first, series.last_after) == (3, None, 0.6)
    text = (after / "metrics.csv").read_text().replace("loss", "kl")
    (after / "metrics.csv").write_text(text)
    assert {one.name: one.steps for one in compare(before, after, {}).series} == {"loss": 0, "kl": 0}


def test_what_is_not_finite(tmp_path: Path) -> None:
    """NaN equals NaN, and a value that is not finite is not compared with the noise."""
    before = sealed(tmp_path, run="a", measurements=healthy(largest=math.nan))
    after = sealed(tmp_path, run="b", measurements=healthy(largest=math.nan))
    assert compare(before, after, {}).measurements == ()
    (moved,) = compare(sealed(tmp_path, run="c"), after, {}).measurements
    assert moved.shift is Shift.NOT_FINITE


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda bundle: (bundle / "environment.json").unlink(), "environment.json"),
        (lambda bundle: (bundle / "record.json").write_text("{}"), "record.json"),
        (lambda bundle: (bundle / "contract.json").write_text("{"), "contract.json"),
        (lambda bundle: (bundle / "observation.json").write_text("[]"), "observation.json"),
        (lambda bundle: (bundle / "metrics.csv").write_text("loss\n1\n"), "metrics.csv"),
        (lambda bundle: (bundle / "metrics.csv").write_text(""), "metrics.csv"),
        (lambda bundle: (bundle / "metrics.csv").write_bytes(b"\xff\xfe\0"), "metrics.csv"),
    ],
)
def test_a_bundle_that_is_none(tmp_path: Path, spoil: Any, why: str) -> None:
    """The error names the file."""
    good, bad = sealed(tmp_path, run="a"), sealed(tmp_path, run="b")
    spoil(bad)
    with pytest.raises(DifferenceError, match=why):
        compare(good, bad, {})


def test_a_folder_above_a_bundle_is_no_bundle(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The folder is refused, and the bundle below it is named."""
    bundle = sealed(tmp_path)
    with pytest.raises(DifferenceError) as refused:
        compare(bundle.parent, bundle, {})
    assert str(refused.value).replace(str(tmp_path), "EVIDENCE") == snapshot


def test_a_bundle_with_a_broken_record_is_not_named_as_another(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    (bundle / "record.json").write_text("{")
    with pytest.raises(DifferenceError) as refused:
        compare(bundle, bundle, {})
    assert str(refused.value).endswith("; name a whole bundle")


def test_items_are_matched_by_id_if_each_has_its_own() -> None:
    """Items are matched by id if every item has its own. Otherwise the lists are compared as they are."""
    assert difference._by_id([{"id": "a"}, {"id": "b", "c": 1}]) == {"a": {"id": "a"}, "b": {"id": "b", "c": 1}}
    for value in ([{"id": "a"}, {"id": "a"}], [{"id": "a"}, {}], [{"id": "a"}, 1], [], {"id": "a"}, "id"):
        assert difference._by_id(value) is value


def test_runs_of_two_claims_have_no_difference(tmp_path: Path) -> None:
    """Two bundles of different claims are refused, in either order."""
    first = sealed(tmp_path)
    second = sealed(tmp_path / "other")
    rewrite(second, "record.json", set_at("id", "F-DEMO-AAA-001"))
    for pair in ((first, second), (second, first)):
        with pytest.raises(DifferenceError):
            compare(*pair, {})


def test_pandas_is_loaded_for_series_only() -> None:
    """pandas takes most of a second to load, so only a comparison of series loads it."""
    assert "pd" not in vars(difference)

"""Evidence as DataFrames."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import harness
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, copy_of, reseal, sealed, tamper

pytestmark = pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PASS with two killed mutants, and a later FAIL."""
    folder = tmp_path_factory.mktemp("frames")
    sealed(folder, mutants=DEFECTIVE, rows=4)
    wrong = healthy(returned=2)
    later = {"run": "2026-11-21T101112Z-cpu-000001", "started": "2026-11-21T10:11:12+00:00"}
    sealed(folder, measurements=wrong, mutants=DEFECTIVE, rows=2, **later)
    return folder / "evidence"


def test_a_row_for_each_run(evidence: Path) -> None:
    """The rows are oldest first, with the columns of the docstring."""
    runs = harness.load(str(evidence))
    assert runs["verdict"].tolist() == ["PASS", "FAIL"]
    assert runs["run"].tolist() == ["2026-11-20T201503Z-cpu-3f2a9c", "2026-11-21T101112Z-cpu-000001"]
    assert str(runs["started"].dtype) == "datetime64[us, UTC]"
    assert (runs["started"].iloc[1].hour, runs["killed"].iloc[0], runs["mutants"].iloc[0]) == (10, 2, 3)
    assert runs["peak_memory_bytes"].iloc[0] == 10_003
    assert math.isnan(runs["peak_gpu_memory_bytes"].iloc[0])
    assert runs["problem"].tolist() == ["", ""]
    assert all((Path(path) / "record.json").is_file() for path in runs["path"])
    documented = (harness.load.__doc__ or "").partition("Columns:")[2].partition("Raises:")[0]
    assert [name for name in runs.columns if name not in documented] == []


def test_a_bundle_is_a_path_too(evidence: Path) -> None:
    """A path can be a bundle, as `harness.run` returns it."""
    assert len(harness.load(harness.load(evidence)["path"].iloc[0])) == 1


def test_clauses_and_mutants_join_their_runs(evidence: Path) -> None:
    """Each clause and each mutant has a row, with values and bounds as data."""
    clauses = harness.clauses(evidence)
    failed = clauses[clauses["outcome"] == "FAIL"].to_dict("records")
    assert [(clause["clause"], clause["keyword"], clause["value"]) for clause in failed] == [
        ("nothing-lost", "rule", {"returned": 2, "given": 3})
    ]
    ratio = clauses.set_index("clause")["ratio"]
    assert ratio["ordered"].tolist() == [pytest.approx(1 / 3)] * 2
    assert ratio["given.type"].isna().all()
    mutants = harness.mutants(evidence)
    first = mutants[mutants["run"] == harness.load(evidence)["run"].iloc[0]]
    assert first["fate"].tolist() == ["killed", "killed", "not run"]
    assert first["seconds"].isna().tolist() == [False, False, True]
    assert first["failed"].iloc[0] == ("nothing-lost",)


def test_steps_have_the_samples_before_them(evidence: Path) -> None:
    """Steps come every tenth of a second, and samples of memory every quarter."""
    steps = harness.steps(evidence)
    first = steps[steps["run"] == "2026-11-20T201503Z-cpu-3f2a9c"]
    assert first["step"].tolist() == [0, 1, 2, 3]
    assert first["loss"].tolist() == [3.0, 1.5, 1.0, 0.75]
    assert first["rss_bytes"].tolist() == [10_000, 10_000, 10_000, 10_001]
    assert first["gpu_process_memory_bytes"].isna().all()
    assert len(steps) == 6


@pytest.mark.parametrize(
    ("metrics", "samples", "steps"),
    [
        ("step,seconds,id,run,rss_bytes\n1,0.5,7,8,9\n", "seconds,rss_bytes,id,a\n0,1,2,3\n", [1]),
        ("step,seconds,loss\n,,1\nnan,1,1\n1e300,1,1\n2,inf,1\n3,-1,nan\n", "seconds\n,\n", []),
        ("step,seconds,loss\n,,1\nnan,1,1\n1e300,1,1\n2,inf,1\n3,-1,nan\n", "seconds\nnan\ninf\n", [3]),
        ("step,seconds,loss\n2,5,1\n1,6,1\n1,4,1\n", "seconds\n", [1, 1, 2]),
    ],
)
def test_series_of_strangers_raise_nothing(
    evidence: Path, tmp_path: Path, metrics: str, samples: str, steps: list[int]
) -> None:
    """A sealed CSV file can have any content."""
    bundle = copy_of(Path(harness.load(evidence)["path"].iloc[0]), tmp_path)
    (bundle / "metrics.csv").write_text(metrics)
    (bundle / "telemetry.csv").write_text(samples)
    reseal(bundle)
    assert harness.steps(bundle)["step"].tolist() == steps


def test_what_cannot_be_read_is_a_row_with_its_problem(evidence: Path, tmp_path: Path) -> None:
    """Such a bundle is a row with its problem, not an exception. The other tables leave it out."""
    (bundle, other) = (Path(path) for path in harness.load(evidence)["path"])
    changed = copy_of(bundle, tmp_path)
    (changed / "record.json").write_text((changed / "record.json").read_text().replace('"PASS"', '"FAIL"', 1))
    tamper(copy_of(other, tmp_path))  # of a file that the tables do not read
    (tmp_path / ".unfinished-x").mkdir()
    runs = harness.load(tmp_path)
    assert (runs["problem"] != "").tolist() == [False, True, True]
    assert runs["verdict"].isna().tolist() == [False, True, True]
    for part in (harness.clauses, harness.mutants, harness.steps):
        assert set(part(tmp_path)["run"]) == {other.name}


def test_an_empty_folder_gives_empty_tables(tmp_path: Path) -> None:
    """An empty table has its columns, so that a filter on them works."""
    for part, column in ((harness.load, "verdict"), (harness.clauses, "clause"), (harness.mutants, "fate")):
        assert len(part(tmp_path)[column]) == 0
    assert list(harness.steps(tmp_path).columns) == ["id", "run", "step", "seconds"]


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """A misspelt path must not look like no evidence."""
    for part in (harness.load, harness.clauses, harness.mutants, harness.steps, harness.verify):
        with pytest.raises(NotADirectoryError):
            part(tmp_path / "nowhere")


def test_without_pandas_the_remedy_is_named(evidence: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra that installs pandas."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[analysis\]"):
        harness.load(evidence)

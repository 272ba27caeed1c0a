"""Finished runs of an external engine, judged by their logs and other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from falsifiers.blackwell.archived.external import Recorded
from harness.base.vocabulary import Outcome
from tests.falsifiers.blackwell.archived.engines import (
    APR,
    GB10,
    OOM,
    TRAINED,
    Seen,
)


def recorded(folder: Path, log: bytes, **parameters: Any) -> Seen:
    """A finished run of apr on gx10."""
    place = folder / "run"
    place.mkdir(exist_ok=True)
    (place / "launch.log").write_bytes(log)
    options = {"trainer": APR, "dir": str(place), "steps": 50, **parameters}
    return Seen(folder, Recorded, device="cpu", **options)


def test_the_run_that_ran_out_at_the_first_block(tmp_path: Path) -> None:
    """The run of PMAT-700 is refuted by the lines that gx10 printed."""
    seen = recorded(tmp_path, GB10 + OOM)
    failed = {"subject.completes", "failed_uploads.maxItems", "reported_compilations.const"}
    assert seen.clauses(Outcome.FAIL) == failed
    assert seen.measured["reported_compilations"] == 2
    assert seen.resolved == {"device": "cuda"}


def test_a_finished_run_tells_what_was_compiled_late(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A last line that is cut off is ignored. The first and last loss are those that the run prints."""
    seen = recorded(tmp_path, GB10 + TRAINED)
    assert seen.clauses(Outcome.FAIL) == {"reported_compilations.const"}
    assert (seen.measured["reported_compilations"], seen.measured["failed_uploads"]) == (3, [])
    assert (list(seen.measured["losses"]), "steps" in seen.resolved) == ([7.6746, 7.2036], False)
    (line,) = [line for line in capfd.readouterr().out.splitlines() if "silu_backward" in line]
    assert "after" in line
    assert "-P apr=/path/to/apr" in str(seen.unseen)


def test_an_empty_compute_cache_of_a_run_that_is_over_shows_nothing(tmp_path: Path) -> None:
    """The empty cache may not belong to that run, so the clause is NOT_MEASURED."""
    (tmp_path / "run" / "compute-cache").mkdir(parents=True)
    assert "cache_files" not in recorded(tmp_path, GB10).measured


def test_a_run_without_a_log_shows_its_cache_all_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "run" / "compute-cache" / "9"
    cache.mkdir(parents=True)
    (cache / "f00").write_bytes(b"code")
    place = tmp_path / "run"
    seen = Seen(tmp_path, Recorded, device="cpu", trainer=APR, dir=str(place))
    assert seen.clauses(Outcome.FAIL) == {"cache_files.maxItems"}
    assert seen.measured["cache_files"] == ["9/f00"]


def test_kernels_that_were_made_ready_are_no_count_of_compilations(tmp_path: Path) -> None:
    """The line says that kernels were compiled before the first step, but not how many."""
    ready = b"[CUDA] Pre-warmed 27 forward kernels (JIT compiled before block upload)\n"
    seen = recorded(tmp_path, ready + b"".join(b"Step %d/50 loss=7.4\n" % step for step in range(1, 51)))
    assert "reported_compilations" not in seen.measured
    assert "27" in seen.unseen["reported_compilations"]

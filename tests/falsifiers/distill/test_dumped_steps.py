"""F-DISTILL-STEP-001 judges the dumped steps of a loop of plain PyTorch, and refutes the bugs that such loops have."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from falsifiers.distill.external import Recorded
from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.outside import failed, outcomes, outside
from tests.tools.trainer.trainers import ROOT
from trainers.foreign import common, plain

STEP = "F-DISTILL-STEP-001"
GIVEN = {"steps": 6, "batch": 4, "sequence": 8, "warmup_steps": 2, "gradient_norm": None, "alpha": 1}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    common.make(folder)
    return folder


def run(folder: Path, start: Path, bug: str, train: Callable[[argparse.Namespace], None] = plain.train) -> Path:
    """Train for three steps, and resume for three more."""
    given = {"student": str(start), "text": str(ROOT / "README.md"), "out": str(folder), "dump": str(folder / "steps")}
    shape = {"steps": 6, "batch": 4, "sequence": 8, "accumulate": 2, "lr": 0.01, "warmup": 2, "clip": 0.0}
    asked = argparse.Namespace(**given, **shape, decay=0.01, every=2, stop=3, seed=0, resume=False, made=0, bug=bug)
    folder.mkdir()
    with (folder / "train.log").open("w") as log, contextlib.redirect_stdout(log):
        train(asked)
        asked.stop, asked.resume, asked.made = 0, True, 3
        train(asked)
    return folder


@pytest.mark.parametrize(
    ("engine", "bug", "clauses"),
    [
        ("plain", "", set()),
        ("accelerated", "", set()),
        ("plain", "not-divided", {"gradient", "first-moment", "second-moment"}),
        ("plain", "schedule-per-micro-batch", {"rate_error.maximum", "weights"}),
        ("plain", "decay-after-update", {"weights"}),
        ("accelerated", "resume-without-optimizer", {"first-moment", "second-moment", "count_error.maximum"}),
        ("plain", "smoothed-loss", {"loss"}),
    ],
)
def test_the_steps_of_a_loop_that_knows_nothing_of_the_harness(
    tmp_path: Path, start: Path, engine: str, bug: str, clauses: set[str]
) -> None:
    """The healthy run, which is resumed once, has all steps as configured. Each bug violates just its clauses."""
    place = run(tmp_path / "run", start, bug, import_module(f"trainers.foreign.{engine}").train)
    trainer = {"trainer": str(ROOT / "trainers" / "foreign" / "foreign.toml"), "dir": str(place), "student": str(start)}
    seen = outside(tmp_path / "judged", STEP, Recorded, **GIVEN, **trainer)
    found = outcomes(STEP, seen, GIVEN)
    assert failed(found) == clauses
    if not bug:
        judged = ("loss", "gradient", "first-moment", "second-moment", "weights", "all-steps", "resolved.steps")
        assert {found[name] for name in judged} == {Outcome.PASS}

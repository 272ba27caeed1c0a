"""Claims judge the dumped steps of loops that know nothing of the harness, and refute the bugs that such loops have."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from falsifiers.distill.external import Recorded
from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.outside import failed, outcomes, outside
from tests.falsifiers.distill.trials import CONTRACTS
from tests.tools.trainer.trainers import ROOT
from trainers.foreign import common, plain

STEP = "F-DISTILL-STEP-001"
RATES = {
    "first_rate_error.maximum", "first_rate_errors_of_tensors[].maximum", "rate_errors[].maximum", "rates[].maximum"
}  # fmt: skip
GIVEN = {"steps": 6, "batch": 4, "sequence": 8, "warmup_steps": 2, "gradient_norm": None, "alpha": 1}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    common.make(folder)
    return folder


def run(
    folder: Path, start: Path, bug: str, train: Callable[[argparse.Namespace], None] = plain.train, **changes: Any
) -> Path:
    """Train for half of the steps, and resume for the others."""
    given = {"student": str(start), "text": str(ROOT / "README.md"), "out": str(folder), "dump": str(folder / "steps")}
    shape = {
        "steps": 6,
        "batch": 4,
        "sequence": 8,
        "accumulate": 2,
        "lr": 0.01,
        "warmup": 2,
        "clip": 0.0,
        "rank": 0,
        **changes,
    }
    options = argparse.Namespace(
        **{"every": 2, **given, **shape}, decay=0.01, stop=shape["steps"] // 2, seed=0, resume=False, made=0, bug=bug
    )
    folder.mkdir()
    with (folder / "train.log").open("w") as log, contextlib.redirect_stdout(log):
        train(options)
        options.stop, options.resume, options.made = 0, True, options.stop
        train(options)
    return folder


def judgment(
    folder: Path, claim: str, place: Path, start: Path, given: Mapping[str, Any], file: str = "foreign"
) -> Mapping[str, Outcome]:
    """The outcomes of the clauses of a claim on the run in a folder."""
    trainer = {"trainer": str(ROOT / "trainers" / "foreign" / f"{file}.toml"), "dir": str(place), "student": str(start)}
    return outcomes(claim, outside(folder, claim, Recorded, **given, **trainer), given)


@pytest.mark.parametrize(
    ("engine", "bug", "clauses"),
    [
        ("plain", "", set()),
        ("accelerated", "", set()),
        ("jax_loop", "", set()),
        ("jax_loop", "not-divided", {"gradient", "first-moment", "second-moment"}),
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
    if engine == "jax_loop":
        pytest.importorskip("jax")
    place = run(tmp_path / "run", start, bug, import_module(f"trainers.foreign.{engine}").train)
    found = judgment(tmp_path / "judged", STEP, place, start, GIVEN)
    assert failed(found) == clauses
    if not bug:
        judged = ("loss", "gradient", "first-moment", "second-moment", "weights", "all-steps", "resolved.steps")
        assert {found[name] for name in judged} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("bug", "of_steps", "of_export"),
    [
        ("", set(), set()),
        ("not-divided", {"gradient", "first-moment", "second-moment"}, set()),
        ("ema-saved", set(), {"different.maxItems", "not_of_last_step.maxItems"}),
    ],
)
def test_adapters_are_judged_as_the_matrices_that_they_change(
    tmp_path: Path, start: Path, bug: str, of_steps: set[str], of_export: set[str]
) -> None:
    """LoRA by peft, resumed once. The export is the merged model, in the bits of peft's own product."""
    pytest.importorskip("peft")
    train = import_module("trainers.foreign.transformers_loop").train
    place = run(tmp_path / "run", start, bug, train, rank=4, every=1)
    given = {**GIVEN, "checkpoint_every": 1}
    found = judgment(tmp_path / "steps", STEP, place, start, given, "lora")
    assert failed(found) == of_steps
    assert bug or {found[name] for name in ("loss", "gradient", "weights", "all-steps")} == {Outcome.PASS}
    assert failed(judgment(tmp_path / "export", "F-DISTILL-CKPT-EXPORT-001", place, start, given, "lora")) == of_export


@pytest.mark.parametrize(
    ("claim", "bug", "clauses"),
    [
        ("F-DISTILL-LR-001", "", set()),
        ("F-DISTILL-LR-001", "schedule-per-micro-batch", RATES),
        ("F-DISTILL-LR-001", "group-without-schedule", RATES),
        ("F-DISTILL-LR-001", "resume-without-optimizer", {"rate_errors[].maximum", "gradient_norm_over_limit.maximum"}),
        ("F-DISTILL-BATCH-001", "", set()),
        ("F-DISTILL-BATCH-001", "not-divided", {"gradient_error.maximum", "gradient_error_again.maximum"}),
        ("F-DISTILL-BATCH-001", "gradients-kept", {"gradient_error_again.maximum"}),
        ("F-DISTILL-BATCH-001", "last-rows-dropped", {"rows.minimum"}),
        ("F-DISTILL-EMBED-001", "", set()),
        ("F-DISTILL-EMBED-001", "gradients-kept", {"gradient_errors[].maximum"}),
    ],
)
def test_other_claims_on_dumped_steps(tmp_path: Path, start: Path, claim: str, bug: str, clauses: set[str]) -> None:
    """As above, with the claim's own sizes. A batch is judged before clipping, and the falsifier hands over none."""
    own = json.loads((CONTRACTS / claim / "contract.json").read_text())["profiles"]["reduced"]["parameters"]
    given = {name: own[name] for name in ("steps", "batch", "learning_rate", "warmup_steps", "gradient_norm")}
    given |= {"sequence": 8, "alpha": 1, "steps": max(4, own["steps"])}
    given |= {"gradient_norm": 1e6} if "BATCH" in claim else {}
    shape = {"steps": given["steps"], "batch": given["batch"], "lr": given["learning_rate"]}
    place = run(tmp_path / "run", start, bug, warmup=given["warmup_steps"], clip=given["gradient_norm"] or 0.0, **shape)
    found = judgment(tmp_path / "judged", claim, place, start, given)
    assert failed(found) == clauses
    unseen = {name.partition(".")[0] for name, outcome in found.items() if outcome is Outcome.NOT_MEASURED}
    assert unseen == {"resolved"} | ({"gradient_error_of_drawn_tokens"} if "BATCH" in claim else set())


@pytest.mark.parametrize(
    ("bug", "clauses"),
    [
        ("", set()),
        ("first-rows-again", {"repeated_share.maximum"}),
        ("half-of-the-text", {"position_gap.maximum"}),
        ("labels-shifted-twice", {"wrong_labels.maxItems"}),
        ("rows-of-noise", {"foreign_rows.maxItems"}),
        ("last-rows-dropped", {"misshapen.maxItems"}),
    ],
)
def test_the_batches_of_a_loop_that_knows_nothing_of_the_harness(
    tmp_path: Path, start: Path, bug: str, clauses: set[str]
) -> None:
    """1,040 rows, one epoch. Fewer steps than the claim looks at prove nothing."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number}: {number**3 % 99_991}\n" for number in range(2000))[:33_000])
    given = {"steps": 4, "batch": 260, "sequence": 32, "alpha": 1, "text": str(text)}
    place = run(tmp_path / "run", start, bug, **{name: given[name] for name in ("steps", "batch", "sequence", "text")})
    found = judgment(tmp_path / "judged", "F-DISTILL-DATA-001", place, start, given)
    assert failed(found) == clauses
    assert found["batches.minimum"] is Outcome.NOT_MEASURED


def test_a_batch_is_not_judged_by_clipped_gradients(tmp_path: Path, start: Path) -> None:
    """Clipping takes a factor of the gradient away, such as that of a loss that is summed."""
    place = run(tmp_path / "run", start, "not-divided", clip=1.0)
    found = judgment(tmp_path / "judged", "F-DISTILL-BATCH-001", place, start, {**GIVEN, "gradient_norm": 1.0})
    assert found["gradient_error.maximum"] is Outcome.NOT_MEASURED

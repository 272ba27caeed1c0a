"""The local files of TensorBoard, MLflow and W&B are read as logs.

Those in tests/recorded/trackers are of tensorboard 2.21 (by torch's SummaryWriter) and of wandb 0.31, offline. Each
holds four steps of `train/loss` and `lr`.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from harness.tools.trainer import directory, tracked_runs
from harness.tools.trainer.output_events import EventKind, LineRule
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Trainer
from tests.tools.trainer.trainers import BIGRAMS, ROOT

RECORDED = ROOT / "tests" / "recorded" / "trackers"
LOSSES = [2.0, 1.5, math.nan, 1.0]


def tensorboard(folder: Path) -> str:
    shutil.copy(RECORDED / "events.out.tfevents.1.host.1.0", folder)
    return "events.out.tfevents.*"


def wandb(folder: Path) -> str:
    shutil.copy(RECORDED / "run.wandb", folder)
    return "*.wandb"


def mlflow_files(folder: Path) -> str:
    metrics = folder / "mlruns" / "0" / "a1b2" / "metrics"
    (metrics / "train").mkdir(parents=True)
    (metrics.parent / "meta.yaml").touch()
    for name, values in (("train/loss", LOSSES), ("lr", [0.01, 0.02, 0.03, 0.04])):
        lines = [f"1795856837{step:03} {value} {step}\n" for step, value in enumerate(values, 1)]
        (metrics / name).write_text("".join(lines))
    return "mlruns/*/*/metrics"


def mlflow_database(folder: Path) -> str:
    database = sqlite3.connect(folder / "mlflow.db")
    database.execute("CREATE TABLE runs (run_uuid TEXT, start_time INTEGER)")
    database.execute("CREATE TABLE metrics (key TEXT, value REAL, run_uuid TEXT, step INTEGER, is_nan INTEGER)")
    database.execute("INSERT INTO runs VALUES ('a', 1)")
    for step, loss in enumerate(LOSSES, 1):
        is_nan = math.isnan(loss)
        database.execute("INSERT INTO metrics VALUES ('lr', ?, 'a', ?, 0)", (step / 100, step))
        database.execute(
            "INSERT INTO metrics VALUES ('train/loss', ?, 'a', ?, ?)", (0 if is_nan else loss, step, is_nan)
        )
    database.commit()
    database.close()
    return "mlflow.db"


@pytest.mark.parametrize("make", [tensorboard, wandb, mlflow_files, mlflow_database])
def test_a_trackers_files_are_a_log(make: Any, tmp_path: Path) -> None:
    """Every step has its values by the tracker's names; a NaN stays one."""
    rule = LineRule(EventKind.STEP, keys={"step": "step", "loss": "train/loss", "learning_rate": "lr"})
    trainer = Trainer(BIGRAMS.path, "tracked", (), (rule,), BIGRAMS.files, logs=(make(tmp_path),))
    steps: list[tuple[int, dict[str, float]]] = []
    telling = Telling(lambda step, values: steps.append((step, dict(values))))
    directory.read_logs(trainer, directory.logs(trainer, tmp_path), telling)
    assert [step for step, _ in steps] == [1, 2, 3, 4]
    assert str([values["loss"] for _, values in steps]) == str(LOSSES)
    assert [values["learning_rate"] for _, values in steps] == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert telling.unseen == ""


@pytest.mark.parametrize("make", [tensorboard, wandb])
def test_what_is_cut_off_anywhere_keeps_the_steps_before(make: Any, tmp_path: Path) -> None:
    """No cut raises anything but OSError, and none invents a value."""
    (path,) = tmp_path.glob(make(tmp_path))
    whole, content = [json.loads(line) for line in tracked_runs.lines(path)], path.read_bytes()
    for size in range(0, len(content), 7):
        path.write_bytes(content[:size])
        for kept, full in zip(map(json.loads, tracked_runs.lines(path)), whole, strict=False):
            assert str(dict(full, **kept)) == str(full)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database at all")
    with pytest.raises(OSError, match="no database of MLflow"):
        list(tracked_runs.lines(tmp_path / "mlflow.db"))

"""What a trainer's TOML file matches, and how far a statement of the run itself counts."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import Setting
from harness.authoring.faults import NotMeasured
from harness.tools.trainer import directory
from harness.tools.trainer.file_check import check_log, check_run
from harness.tools.trainer.output_events import EventKind, LogReader
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Trainer, TrainerError, load
from tests.cli.harness_command import harness
from tests.tools.trainer.trainers import ROOT

if TYPE_CHECKING:
    from falsifiers.distill.external import Recorded

FILE = """
name = "a trainer"
[parameters]
bf16 = false
[command]
line = ["train", {if = "bf16", words = ["--bf16", "{steps}"], otherwise = ["--fp32"]}]
[log]
files = ["*.log"]
[[log.line]]
event = "step"
pattern = '^step (?P<step>\\d+)/\\d+ loss (?P<loss>\\S+)'
[[log.line]]
event = "summary"
pattern = '^made (?P<steps>\\d+) steps'
[files]
export = "{output}/model.safetensors"
checkpoints = "{output}/checkpoint-*/model.safetensors"
step = '^checkpoint-(?P<step>\\d+)/'
[recorded]
ran_on = "cpu"
"""


def trainer(folder: Path, text: str = FILE) -> Trainer:
    """The trainer of a file with this text."""
    path = folder / "trainer.toml"
    path.write_text(text)
    return load(path)


def lines(steps: int, said: int) -> str:
    """A log with a line for each step, and a number of steps at its end that can differ."""
    return "".join(f"step {step}/50 loss {5 / step}\n" for step in range(1, steps + 1)) + f"made {said} steps\n"


def weights(path: Path, **metadata: str) -> Path:
    """A safetensors file with one tensor."""
    header = json.dumps(
        {"__metadata__": metadata, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    ).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.0))
    return path


def a_run(folder: Path, log: str) -> Path:
    """A run's directory, as transformers' Trainer leaves it."""
    run = folder / "run"
    weights(run / "model.safetensors", format="pt")
    for step in (10, 20):
        weights(run / f"checkpoint-{step}" / "model.safetensors", format="pt")
    (run / "train.log").write_text(log)
    return run


def recorded(folder: Path, log: str, steps: int = 50, file: str = FILE) -> Recorded:
    """The finished run as a subject, read to its end."""
    described = trainer(folder, file).path
    parameters: dict[str, Any] = {"trainer": str(described), "dir": str(a_run(folder, log)), "steps": steps}
    from falsifiers.distill.external import Recorded  # it imports transformers

    subject = Recorded(Setting({**parameters, "device": "cpu"}, "cpu", 0, folder / "work", folder / "cache"))
    subject.distill(lambda step, **values: None)
    return subject


@pytest.mark.parametrize(
    ("made", "said", "contradiction", "steps"),
    [
        (30, 50, True, None),
        (30, 30, False, 30),
        (50, 50, False, None),
        (49, 50, False, None),
        (1, 50, None, None),
        (30, 10, True, 10),
    ],
)
def test_what_a_run_says_of_itself(
    made: int, said: int, contradiction: bool | None, steps: int | None, tmp_path: Path
) -> None:
    """A statement can refute a claim, but not prove it. Two statements that contradict each other are a FAIL."""
    ran = recorded(tmp_path, lines(made, said)).ran()
    assert (bool(ran["contradiction"]) if "contradiction" in ran else None, ran.get("steps")) == (contradiction, steps)


def test_a_log_that_leaves_steps_out_contradicts_nothing() -> None:
    """A log with some steps, or without the steps' numbers, does not contradict the summary."""
    telling = Telling(lambda step, values: None)
    rules = load(ROOT / "trainers" / "apr-distill.toml").lines
    for event in LogReader(rules).feed(b"step 10 loss 2\nstep 20 loss 1\n50 steps, 1.0s\n"):
        telling.hear(event)
    assert telling.contradiction is None


@pytest.mark.parametrize(
    ("asked", "first_step", "steps", "problems"),
    [(50, "", None, 1), (40, "", 49, 1), (50, "first_step = 0", None, 0), (40, "first_step = 0", 50, 0)],
)
def test_a_log_that_counts_from_0(
    asked: int, first_step: str, steps: int | None, problems: int, tmp_path: Path
) -> None:
    """A log from 0 to 49 does not refute 50 steps if the file does not say where it begins. It refutes 40 steps."""
    log = "".join(f"step {step}/50 loss 5\n" for step in range(50))
    subject = recorded(tmp_path, log, asked, FILE.replace("[log]", f"[log]\n{first_step}"))
    assert subject.ran().get("steps") == steps
    found = check_log(subject.trainer, subject.logs())
    assert (len(found.problems), found.telling.begins_at_zero) == (problems, not first_step)


def test_two_runs_in_one_log(tmp_path: Path) -> None:
    """The steps' numbers, or a summary between the runs, show that there are two. No number of steps is shown."""
    described = trainer(tmp_path)
    log = tmp_path / "run.log"
    log.write_text(lines(20, 20) + lines(20, 20))
    found = check_log(described, [log])
    assert (found.telling.contradiction, "two runs" in found.telling.unseen, len(found.problems)) == (None, True, 1)
    unnumbered = trainer(
        tmp_path, FILE.replace("(?P<step>\\d+)/\\d+ loss", "loss", 1).replace("[log]", "[log]\nevery = 1")
    )
    log.write_text("step loss 2\nmade 1 steps\nstep loss 2\nmade 1 steps\n")
    assert "two runs" in check_log(unnumbered, [log]).telling.unseen


def test_a_log_without_an_event_is_said_to_have_none(tmp_path: Path) -> None:
    """The report says so first. A device that only the log names is shown, and proves nothing."""
    assert recorded(tmp_path, "hello\n").unheard() != ""
    described = FILE + '[[log.line]]\nevent = "ran"\npattern = "^on (?P<device>\\\\w+)"\n'
    (tmp_path / "named").mkdir()
    path = trainer(tmp_path / "named", described).path
    parameters = {"trainer": str(path), "dir": str(a_run(tmp_path / "named", "on CPU\n")), "steps": 2, "device": "cpu"}
    from falsifiers.distill.external import Recorded

    subject = Recorded(Setting(parameters, "cpu", 0, tmp_path / "work", tmp_path / "cache"))
    subject.distill(lambda step, **values: None)
    assert (subject.unheard(), subject.ran()) == ("", {"told_device": "cpu"})


def test_checkpoints_in_folders_have_steps(tmp_path: Path) -> None:
    """The pattern is searched for in the path from the run's folder."""
    run = a_run(tmp_path, "")
    found = directory.checkpoints(trainer(tmp_path), {"output": str(run)})
    assert list(found) == [10, 20]
    by_name = trainer(tmp_path, FILE.replace("^checkpoint-(?P<step>\\d+)/", "^nothing-(?P<step>\\d+)"))
    checked = check_run(by_name, run, {})
    assert (checked.checkpoint_files, checked.checkpoints, len(checked.problems)) == (2, [], 2)


def test_a_run_that_a_file_matches(tmp_path: Path) -> None:
    """The check prints the counts, and no problem."""
    found = check_run(trainer(tmp_path), a_run(tmp_path, "hello\n" + lines(20, 20)), {})
    assert (found.telling.steps, found.events[EventKind.SUMMARY], found.checkpoints) == (20, 1, [10, 20])
    assert (found.export_tensors, found.unmatched, found.first_unmatched) == (1, 1, "hello")
    assert (found.problems, found.near) == ([], [])


def test_a_line_that_nearly_matches(tmp_path: Path) -> None:
    """The check prints the event, and the place where the line differs from its pattern."""
    log = tmp_path / "run.log"
    log.write_text("epoch 1\nstep 1/50, loss=2.1\n")
    found = check_log(trainer(tmp_path), [log])
    (near,) = found.near
    assert (near.line, near.kind, near.matched) == ("step 1/50, loss=2.1", EventKind.STEP, r"^step (?P<step>\d+)/\d+")
    assert len(found.problems) == 1


def test_lines_without_a_step_are_counted(tmp_path: Path) -> None:
    """Lines are counted if the file says how many steps each stands for. Otherwise the file is refused."""
    text = FILE.replace("(?P<step>\\d+)/\\d+ loss", "loss", 1)
    with pytest.raises(TrainerError):
        trainer(tmp_path, text)
    log = tmp_path / "run.log"
    log.write_text("step loss 2\nstep loss 1.5\nmade 20 steps\n")
    each = check_log(trainer(tmp_path, text.replace("[log]", "[log]\nevery = 1")), [log]).telling
    assert (each.steps, each.newest, each.losses, each.contradiction) == (2, 2, [2.0, 1.5], None)
    tenth = check_log(trainer(tmp_path, text.replace("[log]", "[log]\nevery = 10")), [log]).telling
    assert (tenth.newest, bool(tenth.unseen)) == (20, True)


@pytest.mark.parametrize(("value", "words"), [(True, ["--bf16", "7"]), (False, ["--fp32"]), (None, ["--fp32"])])
def test_words_that_depend_on_a_flag(value: bool | None, words: list[str], tmp_path: Path) -> None:
    """A parameter that is true or false adds words of its own."""
    assert trainer(tmp_path).words({"steps": 7, "bf16": value}) == ["train", *words]


def test_the_command(tmp_path: Path) -> None:
    """The exit status says whether anything is missing."""
    file = str(trainer(tmp_path).path)
    run = a_run(tmp_path, lines(20, 20))
    done = harness(ROOT, "trainer", "check", file, "--run", str(run), home=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "20 steps, 20 losses (5 to 0.25), 1 summary, 2 of 2 checkpoints, export with 1 tensor, 0 unmatched lines\n",
    )
    (run / "model.safetensors").unlink()
    assert harness(ROOT, "trainer", "check", file, "--run", str(run), home=tmp_path).returncode == 1
    assert harness(ROOT, "trainer", "check", str(run / "train.log"), home=tmp_path).returncode == 2


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A trainer's file, a log and a file of its run must be regular files. The check does not wait or read for ever."""
    described, place = trainer(tmp_path), tmp_path / kind
    os.mkfifo(place) if kind == "pipe" else place.symlink_to("/dev/zero")
    with pytest.raises(TrainerError):
        load(place)
    with pytest.raises(NotMeasured):
        check_log(described, [place])
    with pytest.raises(NotMeasured):
        directory.read_logs(described, [place], Telling(lambda step, values: None))
    with pytest.raises(NotMeasured):
        directory.digest(place)

"""The log of a trial: a reader of this file alone knows what the trial did."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import types
from pathlib import Path

import pytest

from harness.authoring.reports import Entered, Logged, Measured, Stepped
from harness.base.redaction import Redactor
from harness.base.vocabulary import Phase
from harness.execution.local_executor import LocalExecutor
from harness.execution.news import ModelsBuilt, tensors_of
from harness.execution.trial_log import TrialLog, WorkspaceFiles, short
from harness.judging.observation import Ending, EndingKind
from tests.execution.projects import run


def lines(log: TrialLog) -> list[str]:
    """The lines of a log without their times."""
    return [line[12:] for line in log.close(Redactor({})).text.splitlines()]


def test_a_subject_cannot_hide_or_forge_a_line() -> None:
    """A line stays one line, without characters that control a terminal."""
    log = TrialLog(time.monotonic(), str)
    log.hear(Logged("harmless\n     0.000  ended: completed\x1b[2J\r"))
    (line,) = lines(log)
    assert line == "harmless\\n     0.000  ended: completed\\x1b[2J\\r"


def test_many_steps_and_calls_take_few_lines() -> None:
    """The log has the 1st, 2nd, 5th, 10th and so on, and the last with the number of all."""
    log = TrialLog(time.monotonic(), str)
    for step in range(1, 1001):
        log.hear(Entered(Phase.SUBJECT))
        log.hear(Stepped(step, {"loss": 1 / step}))
        log.hear(Entered(Phase.FALSIFIER))
        log.hear(Measured({"losses": step}))
    log.end(Ending(EndingKind.COMPLETED))
    printed = lines(log)
    assert len(printed) < 50
    assert [int(line.split(":")[0][5:]) for line in printed if line.startswith("step ")] == [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000,
    ]  # fmt: skip
    assert "1000 steps in all; the last: step 1000: loss 0.001" in printed


def test_a_secret_is_masked_before_it_is_cut() -> None:
    """Half of a secret cannot be recognised."""
    redactor = Redactor({"MY_TOKEN": "v3ry-s3cret-value"})
    log = TrialLog(time.monotonic(), redactor.mask)
    log.hear(Measured({"note": "x" * 190 + "v3ry-s3cret-value"}))
    log.hear(Logged("y" * 590 + "v3ry-s3cret-value"))
    assert "v3ry" not in log.close(redactor).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (float("nan"), "nan"),
        (None, "null"),
        ("a\nb", '"a\\nb"'),
        ([1, 2], "[1, 2]"),
        ([float(number) for number in range(100)], "100 numbers from 0 to 99: 0, 1, …, 99"),
        ([float("inf")] * 7, "7 numbers none finite: inf, inf, …, inf"),
        ({"a": {"b": [1]}}, '{"a": {"b": [1]}}'),
        ("a" * 1000, '"' + "a" * 498 + "…"),
    ],
)
def test_values_are_short(value: object, text: str) -> None:
    """A reader sees the ends and the range of a long list."""
    assert short(value) == text


def test_files_of_the_workspace_are_listed_when_they_are_saved_and_left(tmp_path: Path) -> None:
    """Any code may write them: torch and safetensors write without Python. A link or a pipe is no file of the trial."""
    files = WorkspaceFiles(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.bin").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    assert list(files.saved()) == ["saved workspace/run/model.bin, 3 bytes"]
    assert list(files.saved()) == []
    (tmp_path / "run/model.bin").write_bytes(b"abcd")
    assert list(files.saved()) == ["saved workspace/run/model.bin, 4 bytes"]
    digest = hashlib.sha256(b"abcd").hexdigest()
    assert list(files.kept()) == [f"left workspace/run/model.bin, 4 bytes, sha256 {digest}"]


def test_what_was_requested_stands_beside_what_was_read_back() -> None:
    """Also if nothing was."""
    log = TrialLog(time.monotonic(), str)
    log.compare({"device": "cuda", "steps": 50}, {"device": "cpu"})
    assert lines(log) == [
        'requested device "cuda", read back from the process: "cpu"',
        "requested steps 50, read back from the process: nothing",
    ]


def test_every_trial_compares_what_it_was_asked_for(executor: LocalExecutor) -> None:
    printed = [line[12:] for line in run(executor, "well").log.text.splitlines()]
    assert 'requested device "cpu", read back from the process: "cpu"' in printed


torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc]
    """A model with a part, a tied and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 5, bias=False)
        self.again = torch.nn.Linear(3, 5, bias=False)
        self.again.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.ones(2, dtype=torch.float16), requires_grad=False)

    def parameters(self, recurse: bool = True) -> object:  # type: ignore[override]
        """Would tell something else, if it were asked."""
        raise AssertionError("no method of a model is called")


@pytest.fixture
def models() -> ModelsBuilt:
    """They hear of modules as in a trial."""
    models = ModelsBuilt()
    models.listen()
    return models


def test_a_model_is_described_by_what_torch_made(models: ModelsBuilt) -> None:
    """A parameter that is used twice counts once. A part is no model of its own."""
    net = Net()
    ((text, kind),) = models.news()
    assert kind == "Net"
    assert text == ("Net: 17 parameters, 15 of them trained, 64 bytes, 3 modules, float16 and float32 on cpu")
    assert models.news() == []
    del net


def test_a_model_that_is_gone_is_not_described(models: ModelsBuilt) -> None:
    """The log does not keep models alive."""
    Net()
    assert models.news() == []


def test_the_tensors_of_a_subject_are_described() -> None:
    """Also those of a kernel's subject, which has no model."""

    class Kernel:
        def __init__(self) -> None:
            self.weights = torch.ones(2, 3, dtype=torch.bfloat16)
            self.name = "add"

    assert tensors_of(Kernel()) == ["weights: bfloat16[2, 3] on cpu"]
    assert tensors_of(3) == []


def test_something_else_in_the_place_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is silent on models then, and the trial goes on."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    for name in [name for name in sys.modules if name.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    models = ModelsBuilt()
    models.listen()
    assert models.news() == []

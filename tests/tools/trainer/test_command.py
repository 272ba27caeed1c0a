"""External trainers: the log, and the messages of failures."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.authoring.faults import NotMeasured
from harness.tools.trainer import command_line
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import load

TRAINER = """
name = "mine"
[command]
line = {line}
exit = {{usage = [2], machine = [3]}}
[[log.line]]
event = "step"
pattern = 'step (?P<step>[0-9]+) loss=(?P<loss>[0-9.]+)'
[files]
export = "{{output}}/model"
"""


def run(folder: Path, code: str) -> None:
    """Run a script as a trainer."""
    script, trainer = folder / "train.py", folder / "mine.toml"
    script.write_text(code)
    trainer.write_text(TRAINER.format(line=json.dumps([sys.executable, "-I", str(script), "--seed", "0"])))
    command_line.run(load(trainer), {"output": str(folder)}, Telling(lambda step, values: None))


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("print('step 1 loss=2', flush=True); raise ValueError('no data')", ["1", "step 1", "'ValueError: no data'"]),
        ("print('step 1 loss=2'); print('no data'); exit(1)", ["1", "step 1", "'no data'"]),
        ("print('no', end=' '); print('data', end=''); exit(1)", ["1", "'no data'"]),
        ("import sys; sys.exit('\\x1b[31m' + 'x' * 5000)", ["1", f"'{'x' * 199}…'"]),
        ("exit(1)", ["1"]),
        ("import os, sys; print('oh', flush=True); os.abort()", ["SIGABRT", "'oh'"]),
    ],
    ids=["raises", "exits", "unfinished line", "flood", "silent", "aborts"],
)
def test_a_failure_is_told_with_the_last_words(
    tmp_path: Path, code: str, named: list[str], snapshot: SnapshotAssertion
) -> None:
    """The message has the last line of stderr, else of stdout, without colours."""
    with pytest.raises(command_line.CommandFailed) as caught:
        run(tmp_path, code)
    text = str(caught.value)
    assert [name for name in named if name not in text] == []
    assert text == snapshot


@pytest.mark.parametrize("status", [2, 3])
def test_what_the_trainer_is_not_blamed_for_is_told_with_them_too(
    tmp_path: Path, status: int, snapshot: SnapshotAssertion
) -> None:
    """For example, an interpreter whose script is missing exits with the status of a wrong command line."""
    with pytest.raises(NotMeasured) as caught:
        run(tmp_path, f"print('no such file: x'); exit({status})")
    assert f"status {status}" in str(caught.value)
    assert str(caught.value).replace(str(tmp_path), "FOLDER") == snapshot


def test_the_log_has_the_digest_of_the_script(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The log has the script's digest. The interpreter's would be the same for every trainer."""
    run(tmp_path, "print('step 1 loss=2')")
    digest = hashlib.sha256((tmp_path / "train.py").read_bytes()).hexdigest()
    output = capfd.readouterr().out
    assert f"+ sha256 {digest} {tmp_path / 'train.py'}\n" in output
    assert output.count("+ sha256") == 2

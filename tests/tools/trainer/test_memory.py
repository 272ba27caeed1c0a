"""The memory of a command does not include that of the process that started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.tools.trainer import command_line
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import load

MIB = 2**20
LAG = 7 / 8
"""The smallest amount that the kernel's counters show, because they are kept for each processor."""
TRAINER = """
name = "engine"
[command]
line = {line}
[[log.line]]
event = "step"
pattern = 'step (?P<step>[0-9]+) loss=(?P<loss>[0-9.]+)'
[files]
export = "{{output}}/model"
"""
STARTER = """
import sys
from pathlib import Path
from harness.tools.trainer import command_line
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import load
held = b"x" * int(sys.argv[2])
print("memory", command_line.run(load(Path(sys.argv[1])), {"output": sys.argv[3]}, Telling(lambda step, values: None)))
"""


def taken(folder: Path, code: str, held: int) -> int:
    """The bytes of a command's memory, measured from a process that holds `held` bytes."""
    script = folder / "engine.py"
    script.write_text(code)
    trainer = folder / "engine.toml"
    trainer.write_text(TRAINER.format(line=json.dumps([sys.executable, "-I", str(script)])))
    # A shell between them is small: `ru_maxrss` of a process is at least the memory of the one that forked it.
    words = [
        "/bin/sh",
        "-c",
        '"$@"; exit $?',
        "sh",
        sys.executable,
        "-c",
        STARTER,
        str(trainer),
        str(held),
        str(folder),
    ]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(said.rpartition("memory ")[2])


def test_what_the_starter_holds_is_not_the_commands(tmp_path: Path) -> None:
    """`ru_maxrss` of a child is at least the memory of its parent, so it is not used."""
    assert MIB < taken(tmp_path, "import time; time.sleep(0.3)", 300 * MIB) < 60 * MIB


@pytest.mark.parametrize("held", [0, 600 * MIB])
def test_the_largest_of_its_processes_counts(tmp_path: Path, held: int) -> None:
    """A child of the command counts, and so does memory that it returned."""
    grandchild = "import time; held = b'x' * (200 << 20); time.sleep(1.0); del held; time.sleep(0.3)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {grandchild!r}])"
    assert LAG * 200 * MIB < taken(tmp_path, code, held) < 260 * MIB


def test_what_is_held_for_a_moment_counts_where_it_is_more_than_ours(tmp_path: Path) -> None:
    assert taken(tmp_path, "held = b'x' * (500 << 20)", 0) > LAG * 500 * MIB


def test_a_command_that_cannot_be_read_has_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tools.trainer.memory._high_water_mark", lambda pid: None)
    trainer = tmp_path / "true.toml"
    trainer.write_text(TRAINER.format(line='["true"]'))
    telling = Telling(lambda step, values: None)
    before = bytearray(64 * MIB)  # so that the memory that `wait` returns is ours
    assert command_line.run(load(trainer), {"output": str(tmp_path)}, telling) is None
    del before

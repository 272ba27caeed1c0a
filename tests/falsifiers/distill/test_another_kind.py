"""A trainer that fits no ready-made file. It uses numpy, writes its log as CSV, and a shell script resumes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from harness.base.vocabulary import Outcome
from harness.tools.trainer.file_check import check_run
from harness.tools.trainer.trainer_file import load
from tests.falsifiers.distill.outside import EXPORT, PERIOD, failed, outcomes, outside

SCRIPT = """
import csv, pathlib, sys
import numpy as np
from safetensors.numpy import load_file, save_file
out, steps, every, start = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
saved = sorted(out.glob("state/*.safetensors"), key=lambda path: int(path.stem))
first = int(saved[-1].stem) if saved else 0
weights = load_file(saved[-1] if saved else start)
(out / "state").mkdir(parents=True, exist_ok=True)
with open(out / "metrics.csv", "a") as file:
    for step in range(first, steps):
        csv.writer(file).writerow([step, 2.0 / (step + 1)])
        weights = {name: (one * 0.9).astype("float32") for name, one in weights.items()}
        if every and (step + 1) % every == 0:
            save_file(weights, out / "state" / f"{step + 1}.safetensors")
save_file(weights, out / "params.safetensors")
"""
FILE = """
name = "a script in a shell"
[parameters]
start = "{here}/start.safetensors"
checkpoint_every = 1
[command]
line = ["sh", "-ec", '"$0" "$1" "$2" 2 "$4" "$5"; "$0" "$1" "$2" "$3" "$4" "$5"',
  "{python}", "{here}/script.py", "{output}", "{steps}", "{checkpoint_every}", "{start}"]
[log]
first_step = 0
files = ["metrics.csv"]
[[log.line]]
event = "step"
pattern = '^(?P<step>[0-9]+),(?P<loss>[^,]+)'
[files]
export = "{output}/params.safetensors"
checkpoints = "{output}/state/*.safetensors"
step = '^state/(?P<step>[0-9]+)'
initial = "{start}"
"""
ASKED = {"steps": 4, "checkpoint_every": 1}


def _file(folder: Path) -> Path:
    (folder / "script.py").write_text(SCRIPT)
    save_file({"w": np.ones((4, 4), "float32")}, folder / "start.safetensors")
    (folder / "trainer.toml").write_text(FILE)
    return folder / "trainer.toml"


def test_a_log_that_the_command_writes_is_read(tmp_path: Path) -> None:
    """The command prints nothing, but writes a log.

    Its steps, the weights after each step, and its export have outcomes.
    """
    file = _file(tmp_path)
    seen = outside(tmp_path, EXPORT, trainer=str(file), **ASKED)
    found = outcomes(EXPORT, seen, ASKED)
    assert failed(found) == set()
    measured = ("all-steps", "every-step-moves-weights", "not_of_last_step.maxItems", "unmoved.maxItems")
    assert {found[name] for name in measured if name in found} == {Outcome.PASS}
    checked = check_run(load(file), tmp_path / "workspace" / "output", {})
    assert (checked.telling.steps, checked.checkpoints, checked.problems) == (4, [1, 2, 3, 4], [])


def test_a_parameter_that_its_file_always_gives_is_not_left_out(tmp_path: Path) -> None:
    """The claim asks for a run without periodic checkpoints.

    This trainer cannot make one, so the clause is NOT_MEASURED.
    """
    few = {"periods": [], "steps_of_many": 0, "steps_without_period": 4}
    seen = outside(tmp_path, PERIOD, trainer=str(_file(tmp_path)), **ASKED, **few)
    assert (seen.measurements["unexpected"], seen.ending) == ([], "NotObserved")
    assert "checkpoint_every" in seen.reason

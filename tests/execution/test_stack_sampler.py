"""What a trial does now, by the functions on its stack."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from harness.execution.messages import Doing
from harness.execution.progress import Progress
from harness.execution.stack_sampler import doing
from harness.execution.trial_log import TrialLog, WorkspaceFiles
from harness.execution.watch import Watch
from harness.machine.telemetry import Sampler

ROOT = "/project"
CODE = """
def falsify(look):
    return Engine().archive(look)

class Engine:
    def archive(self, look):
        return (lambda: compile_all(look))()

def compile_all(look):
    return look()
"""


def frame(depth: str) -> FrameType:
    """The frame of a function of the project, called through the others."""
    names: dict[str, object] = {}
    exec(compile(CODE, f"{ROOT}/engine.py", "exec"), names)
    function = names[depth]
    assert callable(function)
    found = function(sys._getframe)
    assert isinstance(found, FrameType)
    return found


def test_the_outermost_and_the_innermost_function_below_the_falsifier() -> None:
    """Functions of other code, such as this test, are not shown."""
    assert doing(frame("falsify"), (f"{ROOT}/",)) == "Engine.archive > compile_all"
    assert doing(frame("compile_all"), (f"{ROOT}/",)) == "compile_all"
    assert doing(frame("falsify"), ("/elsewhere/",)) == ""


def test_what_a_trial_says_that_it_does_is_passed_on() -> None:
    """Secrets are masked, because the code under test chooses the names."""
    heard: list[str] = []
    watch = Watch(
        Progress(0.0, 1.0, False),
        Sampler(None),
        lambda *_: None,
        threading.Event(),
        str.upper,
        TrialLog(0.0, str),
        WorkspaceFiles(Path()),
        on_doing=heard.append,
    )
    watch._understand(Doing("train"), control_pipe=-1)
    assert heard == ["TRAIN"]


def test_a_module_that_is_imported() -> None:
    """The file of the module is named."""
    found: list[FrameType] = []
    exec(compile("take()", f"{ROOT}/slow.py", "exec"), {"take": lambda: found.append(sys._getframe())})
    assert doing(found[0], (f"{ROOT}/",)) == "importing slow"


@pytest.mark.parametrize("place", [Path(__file__)])
def test_the_harness_itself_is_not_shown(place: Path) -> None:
    """A project can be the harness's own checkout."""
    assert "watch_doing" not in doing(sys._getframe(), (f"{place.parents[2]}/",))

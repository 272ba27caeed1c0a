"""The progress line of long commands: only on a terminal, and only after a while."""

from __future__ import annotations

import io
import re
import sys

import pytest

from harness.report.terminal import progress_line as module
from harness.report.terminal.progress_line import progress_line, step_line


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _like_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, calls: int) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line("indexing bundles") as watch:
        for done in range(1, calls + 1):
            watch(done, calls)
    return stream.getvalue()


def test_on_a_terminal_it_says_how_far_it_is_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end the line is removed and the cursor is restored."""
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    monkeypatch.setattr(module, "_BETWEEN", 0.0)
    shown = written(monkeypatch, Terminal(), 30)
    assert "indexing bundles" in shown
    assert "17/30" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("30/30")
    assert shown.endswith("\x1b[2K")


def test_a_step_shows_what_is_done_and_cleans_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line appears at once, on a terminal only."""
    for stream, shown in ((Terminal(), ["compiling"]), (io.StringIO(), [])):
        monkeypatch.setattr(sys, "stderr", stream)
        with step_line("compiling"):
            assert re.findall("compiling", stream.getvalue()) == shown
        assert stream.getvalue().endswith("\x1b[2K" if shown else "")


def test_what_is_done_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is shown, whatever the number of items is."""
    monkeypatch.setattr(module, "_PATIENCE", 3600.0)
    assert written(monkeypatch, Terminal(), 1000) == ""


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, whatever the duration is."""
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    assert written(monkeypatch, io.StringIO(), 1000) == ""


def test_who_is_interrupted_gets_a_clean_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is removed, and the interruption is raised again."""
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)

    def interrupted() -> None:
        with progress_line("indexing bundles") as watch:
            watch(1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\x1b[2K")

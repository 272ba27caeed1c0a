"""Remarks of a run reach the terminal and the JSON, with control characters escaped."""

from __future__ import annotations

import io
import json
from pathlib import Path

from harness.report.terminal.run_lines import Lines, Shown
from harness.report.terminal.run_output import json_handler
from harness.running import events
from harness.tools.live import Live

REMARK = events.Remarked("F-A-001", "left:\n\x1b[31m/tmp/x")


def test_a_remark_is_shown_on_one_line() -> None:
    """The remark has one line among plain lines, and in the live view."""
    lines: list[tuple[str, str]] = []
    Lines(lines.append, Shown())(REMARK)
    stream = io.StringIO()
    Live(stream, Shown())(REMARK)
    assert len(lines) == len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_a_remark_is_in_the_json(tmp_path: Path) -> None:
    """The JSON has the remark with its claim."""
    handle = json_handler(str(tmp_path / "run.json"))
    for event in (REMARK, events.RunFinished(1, (), 0.5, False)):
        handle(event)
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["remarks"] == [{"id": "F-A-001", "text": REMARK.text}]

"""What ending a job saved, and the sum over jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.tools.watch.checks import state_of
from harness.tools.watch.facts import FACTS, Fact, FactFile
from harness.tools.watch.given import Given
from harness.tools.watch.listing import listed, total_line
from harness.tools.watch.text import saved_gpu_seconds, summary

HOUR = 3600.0


def facts(*acts: Fact, device: str = "cuda", runs_on: str = "") -> list[Fact]:
    """A job of 100 steps of an hour each on 8 GPUs, whose loss is NaN from step 4, and which ends after step 6."""
    told: dict[str, Any] = {"fact": "job", "at": 0.0, "name": "big", "values": {"steps": 100, "device": device}}
    found: list[Fact] = [{**told, "runs_on": runs_on}, {"fact": "usage", "at": 1.0, "gpus": 8}]
    for step in range(1, 7):
        values = {"step": str(step), "loss": "nan" if step >= 4 else str(5 - step)}
        found.append(
            {"fact": "output", "at": step * HOUR, "file": "log", "offset": step, "events": [["step", values, ""]]}
        )
    return [*found, *acts, {"fact": "ended", "at": 7 * HOUR, "status": 143, "how": "ended with status 143"}]


def act(**keys: Any) -> Fact:
    """What a watcher did."""
    return {"fact": "acted", "at": 6 * HOUR, "action": "kill", "ends": True, "what": "SIGTERM", **keys}


@pytest.mark.parametrize(
    ("given", "hours"),
    [
        (facts(act()), 8 * 94.0),
        (facts(act(ends=False)), 0.0),
        (facts(), 0.0),
        (facts(act(), device="cpu"), 0.0),
        (facts(act(), runs_on="cpu"), 0.0),
    ],
)
def test_saved_hours(given: list[Fact], hours: float) -> None:
    """The rest of the run on its GPUs, if the watcher ended it."""
    job = state_of(given, Given(steps=100, device=given[0]["values"]["device"]))
    assert saved_gpu_seconds(job) / HOUR == pytest.approx(hours)


def test_the_summary_says_what_the_rest_would_have_cost() -> None:
    """At which second a defect was refuted, and the rest of the run from there."""
    lines = [*summary(state_of(facts(act()), Given(steps=100, device="cuda")))]
    [place] = [line for line in lines if "losses_not_finite: refuted" in line]
    assert "second 18000.0 (step 4, 4.0% of the steps)" in place  # its line is complete when the next one comes
    assert lines[lines.index(place) + 1].endswith("another 96.0 h, 768.00 GPU-hours")


def test_hours_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs were ended, one was left alone; facts that are none hide no other."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    for name, found in {"a": facts(act()), "b": facts(act()), "c": facts()}.items():
        with FactFile(tmp_path / "watch" / name / FACTS) as file:
            for fact in found:
                file.append(fact)
    (tmp_path / "watch" / "d").mkdir()
    (tmp_path / "watch" / "d" / FACTS).write_text("no JSON\n")
    jobs = [*listed()]
    assert [one for one in jobs if isinstance(one, str)] == [jobs[-1]]
    told = total_line([one for one in jobs if not isinstance(one, str)])
    assert told == "3 jobs, 0 running, 3 refuted, 2 ended early: 1504.00 GPU-hours saved"
    assert [*listed(2e12)] == []

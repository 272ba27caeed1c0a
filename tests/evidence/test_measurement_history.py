"""The measurements of a claim over time and devices."""

from __future__ import annotations

from typing import Any

from harness.base.vocabulary import Verdict
from harness.evidence.index import Entry, Measurement
from harness.evidence.measurement_history import TRIAL_SECONDS, earlier_noise, measured, newest_of_series, ran, series
from tests.evidence.entries import CPU, GPU, entry

STEADY = [1.00, 1.01, 0.99, 1.02, 0.98, 1.00]


def told(entries: list[Entry], losses: list[float]) -> dict[Any, dict[str, Measurement]]:
    """Measurements with a loss for each entry."""
    return {one.path: {"loss": Measurement(loss, "nats")} for one, loss in zip(entries, losses, strict=True)}


def test_a_row_a_measurement_and_run_oldest_first() -> None:
    """There is a row for each measurement and run, oldest first. The time of the trial is a measurement too."""
    runs = [entry(2, device=CPU), entry(1, device=CPU)]
    table = measured(runs, told(runs, [5.0, 6.0]))
    assert list(table["measurement"]) == ["loss", TRIAL_SECONDS] * 2
    losses = table[table["measurement"] == "loss"]
    assert list(losses["value"]) == [6.0, 5.0]
    assert list(losses["unit"]) == ["nats", "nats"]
    assert list(losses["shift"]) == ["too few", "too few"]
    assert list(losses["earlier"]) == [0, 1]


def test_a_jump_is_judged_against_the_runs_before_it() -> None:
    """A later run does not count. The unit is the scatter of the earlier runs."""
    runs = [entry(second) for second in range(8)]
    table = measured(runs, told(runs, [*STEADY, 1.5, 1.0]))
    losses = table[table["measurement"] == "loss"]
    assert list(losses["shift"]) == ["too few"] * 5 + ["within", "above", "within"]


def test_only_comparable_runs_are_noise() -> None:
    """Runs of another device, profile, subject or parameters, and NOT_MEASURED ones, do not count as noise."""
    steady = [entry(second, run=f"steady-{second}") for second in range(6)]
    others: list[dict[str, Any]] = [
        {"device": GPU},
        {"profile": "reduced"},
        {"subject": "mine:Other"},
        {"overrides": {"steps": 1}},
        {"verdict": Verdict.NOT_MEASURED},
    ]
    foreign = [entry(10 + number, run=f"foreign-{number}", **changes) for number, changes in enumerate(others)]
    newest = entry(30, run="newest")
    runs = [*steady, *foreign, newest]
    values = told(runs, [*STEADY, *[9.0] * 5, 1.01])
    table = measured(runs, values)
    last = table[(table["run"] == "newest") & (table["measurement"] == "loss")].iloc[0]
    assert (last["earlier"], last["shift"]) == (6, "within")
    noise = earlier_noise(newest, runs, values)
    assert (noise["loss"].count, noise["loss"].middle) == (6, 1.0)
    assert noise[TRIAL_SECONDS].count == 6
    assert earlier_noise(steady[0], runs, values) == {}


def test_a_trainer_is_a_subject_of_its_own() -> None:
    """Each choice of the trainer's own parameters is another subject. The directory of a run makes no difference."""

    def of(number: int, **parameters: str) -> Entry:
        own = {"trainer": "trainers/mine.toml", "dir": f"/runs/{number}", "teacher": "1.5b", "notes": "", **parameters}
        return entry(number, subject="demo.external:Recorded", subject_parameters=own)

    names = [series(one) for one in (of(0), of(1), of(2, teacher="7b"), of(3, trainer="trainers/theirs.toml"))]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert names[2].endswith('teacher="7b", subject recorded:trainers/mine.toml')


def test_the_newest_of_each_series() -> None:
    """There is one row per measurement and series."""
    runs = [entry(0), entry(1, device=GPU), entry(2), entry(3, device=GPU)]
    newest = newest_of_series(measured(runs, told(runs, [1.0, 2.0, 3.0, 4.0])))
    assert sorted(newest[newest["measurement"] == "loss"]["value"]) == [3.0, 4.0]


def test_no_run_is_an_empty_table() -> None:
    """The table has its columns."""
    assert measured([], {}).empty
    assert "shift" in measured([], {}).columns


def test_every_column_of_a_row() -> None:
    """Each row has every column, in the order of the table. A run whose trial never started has no row."""
    started, never = entry(1, device=CPU, commit={"revision": None}, verdict=Verdict.FAIL), entry(2, trial_seconds=0.0)
    brief = entry(3, trial_seconds=0.5)
    table = measured([brief, never, started], told([started, never], [5.0, 6.0]))
    assert list(table["run"]) == [started.run, started.run, brief.run]
    assert table.iloc[0].drop(["median", "scatter"]).to_dict() == {
        "started": started.when, "device": str(started.device_class), "profile": "full", "series": series(started),
        "verdict": "FAIL", "proven": True, "commit": "", "run": started.run, "measurement": "loss", "value": 5.0,
        "unit": "nats", "earlier": 0, "shift": "too few",
    }  # fmt: skip
    assert table.iloc[1][["measurement", "value", "unit"]].to_list() == [TRIAL_SECONDS, 1.25, "s"]
    assert table.iloc[2][["commit", "value"]].to_list() == ["c" * 40, 0.5]
    assert (ran(started), ran(never), ran(brief)) == (True, False, True)


def test_runs_of_other_claims_are_no_noise() -> None:
    """Runs of another claim are not compared, whatever its name and the time of the run."""
    of = entry(9)
    others = [
        entry(1, id="F-AAA-ONE-001"),
        entry(2, id="F-ZZZ-ONE-001"),
        entry(3, id=f"{of.id[:4]}{of.id[4:]}"),
        entry(9, run="b"),
        entry(10),
    ]
    noise = earlier_noise(of, others, told(others, [1.0, 2.0, 3.0, 4.0, 5.0]))
    assert {name: (one.count, one.middle) for name, one in noise.items()} == {
        "loss": (1, 3.0),
        TRIAL_SECONDS: (1, 1.25),
    }


def test_the_newest_rows_are_in_the_order_of_the_table() -> None:
    runs = [entry(0, device=GPU), entry(1, device=CPU), entry(2, device=GPU)]
    newest = newest_of_series(measured(runs, told(runs, [1.0, 2.0, 3.0])))
    assert list(newest["run"]) == [runs[1].run, runs[1].run, runs[2].run, runs[2].run]

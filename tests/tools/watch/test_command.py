"""`harness watch` as a user types it, with real jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus, Outcome, Verdict
from harness.tools.watch import command
from harness.tools.watch.checks import state_of
from harness.tools.watch.facts import FACTS, Fact, FactFile, WatchedAlready, facts_in
from harness.tools.watch.given import Given
from harness.tools.watch.listing import listed, total_line
from harness.tools.watch.planted import GIVEN, planted
from harness.tools.watch.text import saved_gpu_seconds, summary
from harness.tools.watch.watcher import Watcher
from tests.cli.harness_command import environment, harness
from tests.contracts import IDENTIFIER
from tests.tools.watch.jobs import bundles, job_line, project_of, watch_words

CLAIM = f'[tool.harness.watch]\n{IDENTIFIER} = {{ unreadable = "checkpoints_unreadable" }}\n'


def watch(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a watcher to its end."""
    return harness(root, *words[words.index("watch") :])


def facts_of(root: Path, kind: str) -> list[dict[str, object]]:
    """The facts of a kind."""
    return [dict(fact) for fact in facts_in(root / "state" / FACTS) if fact["fact"] == kind]


def until(condition: object, seconds: float = 120.0) -> None:
    """Wait until a function returns something true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_healthy_job(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """It is left alone, its output is copied, and its claim is sealed at its end: all that it showed holds."""
    root, out = project_of(tmp_path, CLAIM), tmp_path / "out"
    words = watch_words(root, "--output", str(out), "--on-refute", "kill", "--html", "page.html",
                        "--without", "throughput_collapsed", "--without", "memory_creeps")  # fmt: skip
    done = watch(root, *words, "--", *job_line(60, 20, "none", out))
    assert done.returncode == ExitStatus.PASS, done.stderr
    assert done.stdout.splitlines()[-1] == "made 60 steps"
    assert facts_of(root, "ended")[0]["status"] == 0
    [bundle] = bundles(root / "evidence")
    assert (bundle.record.id, bundle.record.proven) == ("F-WATCH-TOY-001", True)
    open_ones = {clause.id for clause in bundle.record.clauses if clause.outcome is not Outcome.PASS}
    assert open_ones <= {"resolved.device"}  # in a container, a driver may not tell whose processes it lists
    assert bundle.observation.measurements["steps_seen"] == 60
    assert sorted(path.name for path in out.iterdir()) == [f"step-{step}.safetensors" for step in (20, 40, 60)]
    page = (root / "page.html").read_text()
    assert 'http-equiv="refresh"' not in page
    assert "checkpoints_late" in page
    lines = "\n".join(line for line in done.stderr.splitlines() if line.startswith("  "))
    assert lines == snapshot


def test_a_refuted_job_is_stopped(tmp_path: Path) -> None:
    """NaN ends the job long before its last step, and is sealed with its step while the job runs."""
    root, out = project_of(tmp_path), tmp_path / "out"
    words = watch_words(root, "--on-refute", "stop", "--issue", "DEMO-7", steps=2000)
    done = watch(root, *words, "--", *job_line(2000, 0, "nan", out))
    assert done.returncode == ExitStatus.FAIL
    [bundle] = bundles(root / "evidence")
    assert bundle.path.parent.parent.name == "DEMO-7"
    assert bundle.record.verdict is Verdict.FAIL
    failed = [clause.id for clause in bundle.record.clauses if clause.outcome is Outcome.FAIL]
    assert failed == ["losses_not_finite.maxItems"]
    assert bundle.observation.measurements["losses_not_finite"][0].startswith("step 5, ")
    assert facts_of(root, "refuted")[0]["step"] == 5
    assert facts_of(root, "ended")[0]["status"] == 128 + signal.SIGTERM
    assert "made 2000 steps" not in done.stdout


def test_a_claim_of_the_project_is_refuted_too(tmp_path: Path) -> None:
    """An empty checkpoint violates the clause of the claim that names it, under the claim's own issue."""
    root, out = project_of(tmp_path, CLAIM), tmp_path / "out"
    words = watch_words(root, "--output", str(out), "--on-refute", "kill", "-P", "late_seconds=1", steps=2000)
    done = watch(root, *words, "--", *job_line(2000, 20, "empty", out))
    assert done.returncode == ExitStatus.FAIL
    found = {bundle.record.id: bundle for bundle in bundles(root / "evidence")}
    assert found.keys() == {"F-WATCH-TOY-001", IDENTIFIER}
    own = found[IDENTIFIER]
    assert (own.record.issue, own.record.verdict, own.record.mutants_skipped) == ("DEMO-1", Verdict.FAIL, True)
    outcomes = {clause.id: clause.outcome for clause in own.record.clauses}
    assert [name for name, outcome in outcomes.items() if outcome is Outcome.FAIL] == ["unreadable.maxItems"]
    assert outcomes["nothing-lost"] is Outcome.NOT_MEASURED


def test_a_crash_is_the_jobs_fault(tmp_path: Path) -> None:
    """A status other than 0 is refuted. The hook is a shell command, and reads the refutations from stdin."""
    root = project_of(tmp_path)
    hook = "cat > told.json"
    words = watch_words(root, "--on-refute", "notify", "--hook", hook, steps=30)
    done = watch(root, *words, "--", *job_line(30, 0, "nan", tmp_path / "out"))
    assert done.returncode == ExitStatus.FAIL
    assert '"check": "losses_not_finite"' in (root / "told.json").read_text()
    assert facts_of(root, "ended")[0]["status"] == 0
    other = project_of(tmp_path / "other")
    words = watch_words(other, "--on-refute", "notify", "--hook", hook, steps=30)
    done = watch(other, *words, "--", *job_line(30, 0, "crash", tmp_path / "out"))
    assert '"check": "ended_badly"' in (other / "told.json").read_text()
    assert [fact["check"] for fact in facts_of(other, "refuted")] == ["ended_badly"]
    [bundle] = bundles(other / "evidence")
    assert {"ended_badly.maxItems", "subject.completes"} <= {
        clause.id for clause in bundle.record.clauses if clause.outcome is Outcome.FAIL
    }


@pytest.mark.parametrize("defect", ["none", "nan"])
def test_a_killed_watcher(tmp_path: Path, defect: str) -> None:
    """The job goes on, and another watcher finds what the first one would have found, once; also without a project."""
    root, out = project_of(tmp_path), tmp_path / "out"
    if defect == "none":
        (root / "pyproject.toml").unlink()
    words = watch_words(root, "--output", str(out), steps=100)
    first = subprocess.Popen([*words, "--", *job_line(100, 20, defect, out)], cwd=root, env=environment(root),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    until(lambda: (root / "state" / FACTS).exists() and facts_of(root, "output"))
    first.kill()
    first.wait()
    done = watch(root, "watch", "--resume", "state")
    assert done.returncode == (ExitStatus.PASS if defect == "none" else ExitStatus.FAIL), done.stderr
    assert facts_of(root, "ended")[0]["status"] == 0
    refuted = [(fact["check"], fact["step"]) for fact in facts_of(root, "refuted")]
    assert refuted == ([] if defect == "none" else [("losses_not_finite", step) for step in range(5, 25)])
    clauses = [clause for fact in facts_of(root, "sealed") for clause in fact["clauses"]]  # type: ignore[attr-defined]
    assert clauses == ([] if defect == "none" else ["losses_not_finite.maxItems"])
    assert len(bundles(root / "evidence")) == 1


def test_attached_to_a_running_job(tmp_path: Path) -> None:
    """A job that runs already is watched to its end by its folder and its process, whose output is elsewhere."""
    root, out = project_of(tmp_path), tmp_path / "out"
    out.mkdir()
    with (root / "printed").open("w") as log:
        job = subprocess.Popen(job_line(40, 20, "held", out), cwd=root, stdout=log)
    words = watch_words(root, "--attach", str(out), "--pid", str(job.pid), steps=40)
    watcher = subprocess.Popen(words, cwd=root, env=environment(root), stderr=subprocess.PIPE, text=True)
    until(lambda: (root / "state" / FACTS).exists() and facts_of(root, "output"))
    status = watch(root, "watch", "--list"), harness(root, "status"), harness(root, "status", "--json")
    harness(root, "report", "evidence", "--html", str(tmp_path / "site"))
    (root / "go").touch()
    assert job.wait(120) == 0
    assert "1 job, 1 running, 0 refuted" in status[0].stdout
    assert re.search(r"running jobs:\n  toy  step 2/40 after .* nothing is refuted", status[1].stdout)
    assert [load["name"] for load in json.loads(status[2].stdout)["jobs"]] == ["toy"]
    assert "<td>toy</td>" in (tmp_path / "site" / "index.html").read_text()
    _, output = watcher.communicate(timeout=120)
    assert watcher.returncode == ExitStatus.FAIL, output
    assert facts_of(root, "refuted")[0]["step"] == 5
    assert {fact["step"] for fact in facts_of(root, "checkpoint")} == {20, 40}
    assert sorted(path.name for path in out.iterdir()) == ["step-20.safetensors", "step-40.safetensors"]
    assert json.loads(harness(root, "status", "--json").stdout)["jobs"] == []


def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    """SIGTERM for the watcher ends the job that it started, and then the watcher."""
    root = project_of(tmp_path)
    words = [*watch_words(root, steps=5000), "--", *job_line(5000, 0, "none", tmp_path / "out")]
    watcher = subprocess.Popen(
        words, cwd=root, env=environment(root), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    until(lambda: (root / "state" / FACTS).exists() and facts_of(root, "output"))
    watcher.send_signal(signal.SIGTERM)
    watcher.communicate(timeout=120)
    assert facts_of(root, "ended")[0]["status"] == 128 + signal.SIGTERM
    assert facts_of(root, "refuted") == []


def test_a_broken_watcher_is_loud_and_kills_nothing(tmp_path: Path) -> None:
    """Without a place for its evidence it says so at each seal, and ends with another status; the job ends well."""
    root = project_of(tmp_path)
    (root / "evidence").write_text("a file where a folder has to be")
    words = watch_words(root, "--on-refute", "kill", steps=40)
    done = watch(root, *words, "--", *job_line(40, 0, "none", tmp_path / "out"))
    assert facts_of(root, "ended")[0]["status"] == 0
    assert re.search("(?s)NOT_MEASURED  F-WATCH-TOY-001: .*was not sealed", done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ["toy.toml", "-P", "steps=many", "--", "true"],
        ["toy.toml", "-P", "device=tpu", "--", "true"],
        ["toy.toml", "--without", "typo", "--", "true"],
        ["toy.toml", "--on-refute", "notify", "--", "true"],
        ["toy.toml", "--attach", ".", "--", "true"],
        ["toy.toml", "--attach", "stat"],
        ["toy.toml", "--pid", "999999999"],
        ["none.toml", "--", "true"],
        ["--resume", "nowhere"],
        [],
    ],
)
def test_what_is_refused_starts_nothing(tmp_path: Path, words: list[str]) -> None:
    """A wrong option is found before the job starts."""
    root = project_of(tmp_path)
    done = watch(root, "watch", *words)
    assert done.returncode == ExitStatus.REFUSED
    assert done.stderr.startswith("harness: ")
    assert not [*root.glob("cache/watch/*/output.log")]


def test_the_list_adds_up(tmp_path: Path) -> None:
    """Each watched job of the user has a line."""
    root = project_of(tmp_path)
    words = [word for word in watch_words(root, steps=20) if word not in ("--state", str(root / "state"))]
    assert watch(root, *words, "--", *job_line(20, 0, "none", tmp_path / "out")).returncode == ExitStatus.PASS
    done = watch(root, "watch", "--list", "--since", "24h")
    assert done.returncode == ExitStatus.PASS
    assert "toy  step 20/20" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 job, 0 running, 0 refuted, 0 ended early: 0.00 GPU-hours saved"
    assert os.listdir(root / "cache" / "watch")


HOUR = 3600.0


def facts(*acts: Fact, device: str = "cuda", runs_on: str = "") -> list[Fact]:
    """A job of 100 steps of an hour each on 8 GPUs, whose loss is NaN from step 4, and which ends after step 6."""
    fact: dict[str, Any] = {"fact": "job", "at": 0.0, "name": "big", "values": {"steps": 100, "device": device}}
    found: list[Fact] = [{**fact, "runs_on": runs_on}, {"fact": "usage", "at": 1.0, "gpus": 8}]
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
    assert lines[lines.index(place) + 1].endswith("another 96 h 0 min, 768.00 GPU-hours")


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
    assert [job for job in jobs if isinstance(job, str)] == [jobs[-1]]
    text = total_line([job for job in jobs if not isinstance(job, str)])
    assert text == "3 jobs, 0 running, 3 refuted, 2 ended early: 1504.00 GPU-hours saved"
    assert [*listed(2e12)] == []


def test_a_half_line_is_removed(tmp_path: Path) -> None:
    """The next watcher appends after the last whole fact."""
    path = tmp_path / FACTS
    with FactFile(path) as facts:
        facts.append({"fact": "seen", "at": 1.0})
    with path.open("a") as file:
        file.write('{"fact":"seen","a')
    assert facts_in(path) == ({"fact": "seen", "at": 1.0},)
    with FactFile(path) as facts:
        assert facts.earlier == ({"fact": "seen", "at": 1.0},)
        facts.append({"fact": "seen", "at": float("nan")})
    assert len(facts_in(path)) == 2
    assert facts_in(path)[1]["at"] != facts_in(path)[1]["at"]


def test_one_watcher_holds_a_job(tmp_path: Path) -> None:
    """A second one is refused, and changes nothing."""
    with FactFile(tmp_path / FACTS), pytest.raises(WatchedAlready):
        FactFile(tmp_path / FACTS)


def test_a_course_follows_from_the_facts_alone(tmp_path: Path) -> None:
    """Facts that were written and read again lead to the same refutations."""
    for defect in ("leak", "nan-from-step-30", "stale-checkpoints"):
        path = tmp_path / defect / FACTS
        with FactFile(path) as facts:
            for fact in planted(defect):
                facts.append(fact)
        assert state_of(facts_in(path), GIVEN).refutations == state_of(planted(defect), GIVEN).refutations


def test_a_signal_in_a_poll_ends_a_watcher_of_another_ones_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal does not count as a failed poll, after which the watcher would continue."""
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    watcher = object.__new__(Watcher)
    watcher.readers = SimpleNamespace(process=None)  # type: ignore[assignment]
    watcher.poll = lambda: handlers[signal.SIGTERM](signal.SIGTERM, None)  # type: ignore[method-assign]
    command._pass_on_signals(watcher)
    with pytest.raises(command._Left):
        watcher.run()

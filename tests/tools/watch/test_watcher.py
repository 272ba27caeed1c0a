"""A watcher in trouble: it is killed, its disk is full, the clock jumps, a log is replaced. It harms no job."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base.vocabulary import Verdict
from harness.contract.project import Project
from harness.machine.process_tree import ProcessTree
from harness.tools.trainer.trainer_file import load
from harness.tools.watch.action import Action
from harness.tools.watch.checkpoint_reading import CheckpointReader
from harness.tools.watch.checks import CHECKS, state_of
from harness.tools.watch.facts import Fact, FactFile, facts_in
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import JobState
from harness.tools.watch.log_reading import LogFollower
from harness.tools.watch.process import keep_room, outputs_of
from harness.tools.watch.setting_up import Asked, begin
from harness.tools.watch.watcher import Orders, Watcher
from tests.cli.harness_command import environment
from tests.tools.watch.jobs import bundles, job_line, project_of, watch_words

RECORDED = Path(__file__).parents[2] / "recorded" / "trackers"
ORDERS = Orders(Action.KILL, interval=0.05, sample_every=1.0)


def started_in(root: Path, steps: int, defect: str, said: list[str]) -> Watcher:
    """A watcher of a job that it starts, and is to kill."""
    line = [sys.executable, str(root / "job.py"), *job_line(steps, 0, defect, root / "out")[2:]]
    asked = Asked(root / "toy.toml", {"steps": steps}, None, ORDERS, command=line)
    return begin(asked, root / "state", Project.find(root), said.append, lambda _: None)


def test_no_job_runs_that_no_fact_names(tmp_path: Path) -> None:
    """A watcher that is killed before its first fact takes the shell with it, and the job has not begun."""
    code = (
        "import os, pathlib; from harness.tools.watch.process import start\n"
        "def record(job): print(job.pid, flush=True); os.kill(os.getpid(), 9)\n"
        "start(['touch', 'begun'], pathlib.Path('.'), {}, record)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    end = time.monotonic() + 20
    while Path(f"/proc/{int(done.stdout)}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not (tmp_path / "begun").exists()
    assert (tmp_path / "status").read_text() == ""


@pytest.mark.parametrize("fails", [{"refuted"}, {"output", "usage", "broken", "ended"}])
def test_a_full_disk_kills_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: set[str]) -> None:
    """Facts that cannot be written are told, and the job, though it is refuted, goes on to its end."""
    append, said = FactFile.append, list[str]()

    def full(self: FactFile, fact: Fact) -> Fact:
        if fact["fact"] in fails:
            raise OSError(28, "No space left on device")
        return append(self, fact)

    monkeypatch.setattr(FactFile, "append", full)
    watcher = started_in(project_of(tmp_path), 30, "nan", said)
    with watcher.facts:
        job = watcher.run()
    assert (job.status, job.is_over, job.acted) == (0, True, [])
    assert "No space left" in job.broken[0]["why"]
    assert [line for line in said if "THE WATCHER FAILED" in line]


def test_a_fact_that_no_check_takes_kills_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that raises breaks the watcher, once; the others go on, and a later watcher can still read the facts."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CHECKS[0], "on_step", fail)
    said: list[str] = []
    watcher = started_in(project_of(tmp_path), 30, "nan", said)
    with watcher.facts:
        job = watcher.run()
    assert (job.status, job.step, job.acted) == (0, 30, [])
    assert [fact["why"] for fact in job.broken] == ["RuntimeError: losses_not_finite: ZeroDivisionError"]
    assert (tmp_path / "state" / "output.log").stat().st_blocks * 512 < 1 << 20  # the reserve is given back


def follower(folder: Path) -> LogFollower:
    """What follows run.log."""
    return LogFollower(load(folder / "toy.toml"), lambda: [folder / "run.log"], lambda _: None)


def lines(first: int, last: int) -> str:
    """The output of these steps."""
    return "".join(f"step {step}/900 loss {5 - step / 1000}\n" for step in range(first, last + 1))


def test_logs_are_replaced(tmp_path: Path) -> None:
    """A copy with the same beginning is read on; another file, also a longer one, is read from its beginning."""
    root = project_of(tmp_path)
    log, reader, job = root / "run.log", follower(root), JobState(Given(steps=900), CHECKS)

    def read(content: str, *, is_over: bool = False) -> int:
        log.write_text(content)
        for fact in reader.read(job, 1.0, is_over=is_over):
            job.apply(fact)
        return job.telling.newest

    assert read(lines(1, 20)) == 20
    assert read(lines(1, 30) + "step 31/900 lo") == 30  # as rsync writes a copy; its last line has no end yet
    assert read(lines(31, 33)) == 33  # rotated
    assert read(lines(34, 90)) == 90  # rotated, and the new file is longer than the old one was
    log.unlink()
    assert [*reader.read(job, 1.0, is_over=False)] == []
    assert read(lines(91, 95) + '{"step": 96, "lo', is_over=True) == 95
    assert (job.telling.steps, job.refutations) == (95, [])


def test_a_clock_that_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's seconds go on as before."""
    said: list[str] = []
    watcher = started_in(project_of(tmp_path), 2, "none", said)
    with watcher.facts:
        before, now = watcher.now, time.time()
        for jump in (-3600.0, 3600.0):
            monkeypatch.setattr("harness.tools.watch.watcher.time.time", lambda jump=jump: now + jump)
            assert 0 <= watcher.now - before < 600
        watcher.run()
    assert (watcher.job.status, watcher.job.refutations) == (0, [])


def test_a_job_that_cannot_work_does_not_stand_still() -> None:
    """A scheduler may stop its processes, or others may have the processors that it waits for."""
    starved, crowded = {"waiting_percent": 60.0}, {"busy_percent": 99.0, "others_percent": 90.0}
    stands = {**crowded, "waiting_percent": 0.1}
    for keys, count in (({"suspended": True}, 0), ({}, 1), (starved, 0), (crowded, 0), (stands, 1)):
        job = JobState(replace(Given(steps=900), stall_seconds=10.0), CHECKS)
        events = [["step", {"step": str(step)}, ""] for step in range(1, 9)]
        job.apply({"fact": "output", "at": 1.0, "file": "log", "offset": 9, "events": events})
        for at in range(10, 90, 10):
            job.apply({"fact": "usage", "at": float(at), "cpu_percent": 0.0, **keys})
        assert len(job.refutations) == count


def test_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    """It counts as unreadable after `late_seconds` without a change, and an empty folder too; other forms never do."""
    root = project_of(tmp_path)
    job, values = JobState(Given(), CHECKS), {"output": str(root)}
    reader = CheckpointReader(load(root / "toy.toml"), values, Given(settle_seconds=1.0, late_seconds=50.0))
    (root / "step-1.safetensors").write_bytes(b"half")
    (root / "step-2.safetensors").mkdir()
    (root / "step-3.safetensors").mkdir()
    (root / "step-3.safetensors" / "rank-0.distcp").write_bytes(b"shard")
    (root / "step-4.safetensors").write_bytes(b"is deleted")

    def look(at: float, *, is_over: bool = False) -> dict[int, str]:
        for _ in range(2):
            for fact in reader.read(job, at, is_over=is_over):
                job.apply(fact)
            reader._pool.submit(int).result()  # it has read
        return {step: checkpoint.refused for step, checkpoint in job.checkpoints.items()}

    assert [look(at) for at in (1.0, 3.0, 40.0)] == [{}, {}, {}]
    (root / "step-1.safetensors").write_bytes(b"a little more")
    (root / "step-4.safetensors").unlink()
    assert look(52.0).keys() == {2}
    found = look(103.0)
    assert (found.keys(), found[2]) == ({1, 2}, "the folder is empty")
    assert look(104.0, is_over=True).keys() == {1, 2}
    assert not reader.is_busy
    reader.close()


def test_a_trackers_file_is_followed(tmp_path: Path) -> None:
    """Each step of TensorBoard's events counts once, the newest when the next one is there, or the job is over."""
    root = project_of(tmp_path)
    content = (RECORDED / "events.out.tfevents.1.host.1.0").read_bytes()
    log, steps = root / "events.out.tfevents.1.host.1.0", []
    with (root / "toy.toml").open("a") as file:
        file.write('[[log.line]]\nevent = "step"\njson = {step = "step", loss = "train/loss"}\n')
    reader, job = LogFollower(load(root / "toy.toml"), lambda: [log], lambda _: None), JobState(Given(), CHECKS)
    for at, end in enumerate([len(content) // 2, len(content) // 2, len(content), len(content)]):
        log.write_bytes(content[:end])
        for fact in reader.read(job, 1000.0 * at, is_over=at == 3):
            job.apply(fact)
            steps.append(job.telling.newest)
    assert (steps, job.telling.steps, job.telling.disorder) == ([0, 3, 4], 4, "")


def test_waiting_for_a_processor_is_read() -> None:
    """Of this process; where the kernel does not say so, there is nothing."""
    tree = ProcessTree()
    tree.add(os.getpid())
    tree.read()
    assert all(delay >= 0 for delay in tree.delays().values())
    assert bool(tree.delays()) is Path("/proc/self/schedstat").exists()


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """The trainer prints on into the room that is kept for it; the watcher is loud, ends nothing, and catches up."""
    root = project_of(tmp_path)
    (root / "state").mkdir()
    script = """
mount -t tmpfs -o size=80m tmpfs state || exit 77
"$@" 2> said &
until grep -q '"step","3"\\|"step": *"3"' state/facts.jsonl 2> none; do sleep 0.05; done
dd if=/dev/zero of=state/filler bs=64k 2> none
dd if=/dev/zero of=state/rest bs=1 count=65536 2> none
until grep -q "THE WATCHER FAILED" said; do sleep 0.05; done
touch go
until tail -n 1 state/output.log | grep -q made; do sleep 0.05; done
cat state/facts.jsonl > full
rm state/filler state/rest
wait
cp state/facts.jsonl state/output.log .
"""
    words = watch_words(root, "--on-refute", "kill", "--", *job_line(60, 0, "held", root / "out"), every=0)
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "timeout", "120", "sh", "-c", script, "sh", *words],
        cwd=root, env=environment(root), capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("needs unshare, and a tmpfs mounted in its namespace")
    assert (root / "output.log").read_text().splitlines()[-1] == "made 60 steps"
    during, after = facts_in(root / "full"), facts_in(root / "facts.jsonl")
    assert state_of(during, Given(steps=60)).step <= 3
    job = state_of(after, Given(steps=60))
    assert (job.step, job.status, [fact["ends"] for fact in job.acted]) == (60, 0, [])
    assert {refutation.check for refutation in job.refutations} == {"losses_not_finite"}
    assert [bundle.record.verdict for bundle in bundles(root / "evidence")] == [Verdict.FAIL]
    assert "is full" in (root / "said").read_text()


@pytest.mark.parametrize(
    ("number", "succeeds"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EOPNOTSUPP, True)]
)
def test_a_quota_is_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, succeeds: bool) -> None:
    """One that is used up is a full disk; a file system that reserves nothing is not."""

    def fails(*_: int) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(fallocate64=fails))
    output = tmp_path / "output.log"
    output.write_bytes(b"")
    assert (keep_room(output, 0) == "") is succeeds


def test_room_is_made_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been read of the output is given back to the disk, but for its last page; a deleted file needs none."""
    calls: list[tuple[int, int, int]] = []
    monkeypatch.setattr("harness.tools.watch.process._allocated", lambda _, *numbers: calls.append(numbers))
    output = tmp_path / "output.log"
    assert keep_room(output, 0) == ""
    output.write_bytes(bytes(20_000))
    assert "its beginning is given back" in keep_room(output, 20_000)
    assert calls == [(1, 20_000, 64 << 20), (3, 0, 12_288), (1, 20_000, 16 << 20), (1, 20_000, 4 << 20)]


def test_the_files_that_a_process_prints_into(tmp_path: Path) -> None:
    """One that is appended to may hold another run, a pipe is none, and a file that was deleted has no name."""
    with (
        (tmp_path / "new").open("w") as new,
        (tmp_path / "old").open("a") as old,
        (tmp_path / "gone").open("w") as gone,
    ):
        (tmp_path / "gone").unlink()
        for files, found in (((new, old), ["new"]), ((subprocess.PIPE, new), ["new"]), ((gone, gone), [])):
            job = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=files[0], stderr=files[1])
            assert [path.name for path in outputs_of(job.pid)] == found
            job.communicate()

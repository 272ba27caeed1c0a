"""Subjects that stop or kill the processes that watch over them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from harness.base.vocabulary import Outcome
from harness.contract.project import Project
from harness.execution import watch
from harness.execution.local_executor import LocalExecutors
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from tests.execution.projects import run

SETUP = """
parent = os.getppid()
server = int(open(f"/proc/{parent}/stat").read().rpartition(")")[2].split()[1])
def daemon(code="time.sleep(60)"):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.chdir(MARK)
        os.closerange(0, 64)
        signal.alarm(60)  # if the harness fails, or the tests are interrupted, the machine recovers by itself
        exec(code)
        os._exit(0)
    os.wait()
"""
ATTACKS = {
    "stops its supervisor": "daemon(); os.kill(parent, 19)",
    "stops the server": "daemon(); os.kill(server, 19)",
    "stops both": "daemon(); os.kill(server, 19); os.kill(parent, 19)",
    "stops both and itself": "daemon(); os.kill(server, 19); os.kill(parent, 19); os.kill(os.getpid(), 19)",
    "kills its supervisor": "daemon(); os.kill(parent, 9); time.sleep(1000)",
    "kills the server": "daemon(); os.kill(server, 9)",
    "kills both": "daemon(); os.kill(server, 9); os.kill(parent, 9); time.sleep(1000)",
    "kills both and lives": """daemon(); ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
os.kill(server, 9); os.kill(parent, 9)""",
    "stops its supervisor and kills the server": "daemon(); os.kill(parent, 19); os.kill(server, 9)",
    "kills its supervisor and stops the server": "daemon(); os.kill(server, 19); os.kill(parent, 9); time.sleep(1000)",
    "leaves a stopped daemon and stops both": """daemon('os.kill(os.getpid(), 19)')
os.kill(server, 19); os.kill(parent, 19)""",
    "leaves a daemon that stops both later": """
daemon(f'time.sleep(0.2); os.kill({parent}, 19); os.kill({server}, 19); time.sleep(60)')
time.sleep(0.6)""",
    "leaves daemons that watch each other": """
for _ in range(3):
    daemon('''
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        signal.alarm(60)
        time.sleep(60)
    time.sleep(0.2)''')
os.kill(parent, 19)
os.kill(server, 19)""",
    "traces its supervisor": "daemon(); ctypes.CDLL(None).ptrace(16, parent, 0, 0)",
}


@pytest.mark.parametrize("how", ATTACKS)
def test_nothing_passes_and_nothing_is_left(
    project: Project, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is not PASS, each trial ends within its limit and a few seconds, and no process is alive."""
    monkeypatch.setattr(watch, "TEARDOWN_SECONDS", 2.0)
    contract = project.contract("F-TOY-SORT-001")
    mark = tmp_path / "mark"
    mark.mkdir()
    executors = LocalExecutors(project, [contract], tmp_path / "cache")
    try:
        with executors(contract) as executor:
            executor.imports()
            code = f"runs:MARK = {str(mark)!r}\n{SETUP}\n{ATTACKS[how]}"
            attacked = run(executor, code, seconds=4.0).observation
            after = run(executor, "well", seconds=4.0).observation
    finally:
        executors.close()
        left = _ended_within(mark)
    assert left == 0
    assert attacked.ending.kind is not EndingKind.SUBJECT_FAULT, attacked.ending  # the attack itself works
    if how != "traces its supervisor":  # which some kernels refuse
        assert judge(contract, attacked).outcome is not Outcome.PASS
    assert judge(contract, after).outcome in (Outcome.PASS, Outcome.NOT_MEASURED)


def _ended_within(folder: Path) -> int:
    """Kill the processes that work in a folder until there is none. Returns how many there were."""
    killed = 0
    while found := [process for process in psutil.process_iter() if _works_in(process, folder)]:
        killed += len(found)
        for process in found:
            with suppress(psutil.Error):
                process.kill()
    return killed


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False

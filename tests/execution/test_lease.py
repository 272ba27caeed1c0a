"""Leases between real processes, and the messages of a wait."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.execution.lease import (
    CPU,
    Holder,
    LeaseUnavailable,
    Memory,
    WaitInterrupted,
    default_directory,
    lease,
    list_holders,
    other_processes,
)
from harness.machine.host import Gpu
from tests.recorded import replay

HOLD = """
import os, sys, tempfile, time
from pathlib import Path
from harness.execution.lease import lease
if len(sys.argv) > 3:
    # Imports what is imported late, which the other user may not be able to read.
    with tempfile.TemporaryDirectory() as own:
        with lease("x", mode="shared", holder="", wait_seconds=0, directory=Path(own)):
            pass
    os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
with lease("GPU-a", mode=sys.argv[2], holder="F-HOLDER-001", wait_seconds=5, directory=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


class Holders:
    """Processes that hold the lease of GPU-a until they are ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, mode: str, user: int | None = None) -> subprocess.Popen[str]:
        extra = [] if user is None else [str(user)]
        command = [sys.executable, "-c", HOLD, str(self.folder), mode, *extra]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        return process


@pytest.fixture
def holders(folder: Path) -> Iterator[Holders]:
    started = Holders(folder)
    yield started
    for process in started.processes:
        process.kill()
        process.communicate()


def ask(mode: str, folder: Path, seconds: float = 0, key: str = "GPU-a", holder: str = "F-ASKS-001") -> float:
    """Take and return a lease; return the seconds that it took."""
    with lease(key, mode=mode, holder=holder, wait_seconds=seconds, directory=folder) as waited:  # type: ignore[arg-type]
        return waited


def test_shared_leases_are_held_together(holders: Holders, folder: Path) -> None:
    holders.start("shared")
    holders.start("shared")
    assert ask("shared", folder) < 1


@pytest.mark.parametrize(
    ("held", "asked"), [("shared", "exclusive"), ("exclusive", "shared"), ("exclusive", "exclusive")]
)
def test_the_error_names_the_holder(held: str, asked: str, holders: Holders, folder: Path) -> None:
    process = holders.start(held)
    with pytest.raises(LeaseUnavailable) as error:
        ask(asked, folder, 0.3)
    text = str(error.value)
    assert [name for name in ("GPU-a", "F-HOLDER-001", f"pid {process.pid}", f" {held},") if name not in text] == []
    assert [holder.pid for holder in error.value.holders] == [process.pid]


def test_devices_do_not_wait_for_each_other(holders: Holders, folder: Path) -> None:
    holders.start("exclusive")
    assert ask("exclusive", folder, key="GPU-b") < 1
    assert ask("exclusive", folder, key=CPU) < 1


@pytest.mark.parametrize("held", ["shared", "exclusive"])
def test_a_holder_that_is_killed_frees_its_lease_at_once(held: str, holders: Holders, folder: Path) -> None:
    process = holders.start(held)
    (record,) = (folder / "GPU-a").glob("*.holder.json")
    threading.Timer(0.5, process.send_signal, [signal.SIGKILL]).start()
    assert 0.3 < ask("exclusive", folder, 10) < 2
    process.wait()
    assert list_holders(folder / "GPU-a") == ()
    assert not record.exists()


def test_a_stale_name_is_not_blamed(holders: Holders, folder: Path) -> None:
    """A process with the id of a dead holder is not blamed, because it does not lock the file."""
    process = holders.start("shared")
    (record,) = (folder / "GPU-a").glob("*.holder.json")
    content = json.loads(record.read_text())
    false = record.with_name(f"{os.getpid()}-1-1.holder.json")
    false.write_text(json.dumps({**content, "pid": os.getpid()}))
    assert [holder.pid for holder in list_holders(folder / "GPU-a")] == [process.pid]
    assert not false.exists()


def test_the_wait_is_told_and_ends_when_the_lease_is_free(holders: Holders, folder: Path) -> None:
    process = holders.start("exclusive")
    threading.Timer(0.6, process.terminate).start()
    reports: list[tuple[Holder, ...]] = []
    with lease(
        "GPU-a", mode="exclusive", holder="F-A", wait_seconds=60, directory=folder, on_wait=reports.append
    ) as waited:
        assert waited > 0.4
        process.wait()  # the lock of its name is freed after that of the device
        assert [holder.text for holder in list_holders(folder / "GPU-a")] == ["F-A"]
    assert reports[0][0].text == "F-HOLDER-001"
    assert all(earlier != later for earlier, later in pairwise(reports))  # only changes are reported again
    assert len(reports) <= 2
    assert list_holders(folder / "GPU-a") == ()


def test_a_wait_that_is_given_up_says_for_whom_it_was(holders: Holders, folder: Path) -> None:
    """The message names the holder, and no lock is left. Without a wait, `interrupted` is not called."""
    process = holders.start("exclusive")
    checks: list[None] = []

    def enough() -> bool:
        checks.append(None)
        return len(checks) > 1

    wanted = lease("GPU-a", mode="exclusive", holder="F-A", wait_seconds=60, directory=folder, interrupted=enough)
    with (
        pytest.raises(WaitInterrupted, match=rf"F-HOLDER-001 \(pid {process.pid}, "),
        wanted,
    ):
        pass
    assert len(checks) == 2
    process.terminate()
    process.wait()
    with lease("GPU-a", mode="exclusive", holder="F-A", wait_seconds=5, directory=folder, interrupted=enough):
        assert len(checks) == 2


def test_threads_of_one_process_wait_for_each_other(folder: Path) -> None:
    inside = 0
    most = 0
    errors: list[BaseException] = []

    def work() -> None:
        nonlocal inside, most
        try:
            for _ in range(5):
                with lease(CPU, mode="exclusive", holder="F-A", wait_seconds=30, directory=folder):
                    inside += 1
                    most = max(most, inside)
                    time.sleep(0.005)
                    inside -= 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, errors) == (1, [])


def test_a_stream_of_shared_leases_lets_an_exclusive_one_in(folder: Path) -> None:
    """Without the queue, an endless series of overlapping shared leases would keep the exclusive one waiting."""
    over = threading.Event()

    def work(delay: float) -> None:
        over.wait(delay)
        while not over.is_set():
            with lease("GPU-a", mode="shared", holder="F-S", wait_seconds=30, directory=folder):
                over.wait(0.3)

    threads = [threading.Thread(target=work, args=(0.03 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        assert ask("exclusive", folder, 10) < 3
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_folder_that_cannot_hold_leases(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LeaseUnavailable, match="set HARNESS_LEASE_DIR"):
        ask("shared", tmp_path / "file" / "leases")


def test_a_link_in_a_public_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "leases").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(LeaseUnavailable, match="symbolic link"):
        ask("shared", tmp_path / "leases")


def test_what_strangers_write_beside_the_lock_does_no_harm(holders: Holders, folder: Path) -> None:
    """A pipe, invalid text, and a name with control characters beside the lock do no harm."""
    holders.start("shared")
    place = folder / "GPU-a"
    os.mkfifo(place / "1-1-1.holder.json")
    (place / "2-2-2.holder.json").write_text("nonsense")
    (place / "3-3-3.holder.json").write_text("[]")
    (record,) = place.glob(f"{holders.processes[0].pid}-*.holder.json")
    content = json.loads(record.read_text())
    with (place / "4-4-4.holder.json").open("w") as forged:
        forged.write(json.dumps({**content, "text": "\x1b[2Jgone\n", "since": 9e9}))
        forged.flush()
        fcntl.flock(forged, fcntl.LOCK_EX)
        names = [str(holder).partition(" ")[0] for holder in list_holders(place)]
    assert names == ["F-HOLDER-001", r"\x1b[2Jgone\n"]


def test_a_key_cannot_leave_the_folder(folder: Path) -> None:
    ask("shared", folder, key="../../x")
    assert [path.name for path in folder.iterdir()] == ["_.._x"]
    assert not (folder.parent / "x").exists()


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder like /tmp; pytest's own belongs to one user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o1777)
        yield Path(place, "leases")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become two users")
def test_users_share_leases(common: Path, holders: Holders) -> None:
    """One user holds a lease and another waits, in both orders."""
    folder = holders.folder = common
    ask("shared", folder, key="GPU-made-by-root")
    first = holders.start("exclusive", user=65534)
    with pytest.raises(LeaseUnavailable, match=rf"F-HOLDER-001 \(pid {first.pid}, "):
        ask("exclusive", folder, 0.2)
    first.kill()
    first.wait()
    second = holders.start("shared", user=12345)
    assert ask("shared", folder, 2) < 2
    with pytest.raises(LeaseUnavailable, match=rf"F-HOLDER-001 \(pid {second.pid}, "):
        ask("exclusive", folder, 0.2)


def test_every_user_can_add_a_lease(folder: Path) -> None:
    """Every user can write to the folders. They are sticky, so no user can remove the leases of another."""
    ask("shared", folder)
    assert [place.stat().st_mode & 0o7777 for place in (folder, folder / "GPU-a")] == [0o1777, 0o1777]


def test_where_leases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is not under $TMPDIR, because not all users share that."""
    monkeypatch.setenv("TMPDIR", "/somewhere")
    monkeypatch.delenv("HARNESS_LEASE_DIR", raising=False)
    assert default_directory() == Path("/tmp/falsifier-harness-leases")
    monkeypatch.setenv("HARNESS_LEASE_DIR", "/elsewhere")
    assert default_directory() == Path("/elsewhere")


def test_leases_survive_the_removal_of_their_folder(folder: Path) -> None:
    """The folder is made again, for example after a service has cleaned /tmp between two runs."""
    ask("shared", folder)
    shutil.rmtree(folder)
    assert ask("exclusive", folder) < 1


@pytest.mark.parametrize(
    ("gib", "is_free"), [(40.0, True), (60.0, False), (0.0, True)], ids=["fits", "too much", "unknown"]
)
def test_shared_leases_share_the_memory(folder: Path, gib: float, is_free: bool) -> None:
    """A lease waits until the others leave enough memory for it. The only holder may use more than there is."""

    def hold(gib: float) -> AbstractContextManager[float]:
        memory = Memory(gib, 100.0)
        return lease("gpu-7", mode="shared", holder=f"{gib:g} GiB", wait_seconds=0, directory=folder, memory=memory)

    with hold(60.0):
        if is_free:
            with hold(gib):
                pass
        else:
            with pytest.raises(LeaseUnavailable) as refused, hold(gib):
                pass
            assert [holder.text for holder in refused.value.holders] == ["60 GiB"]
    with hold(300.0):
        pass


def test_a_holder_that_states_no_memory_takes_none(holders: Holders, folder: Path) -> None:
    """A holder that states no memory takes none from the next one that states some."""
    holders.start("shared")
    memory = Memory(200.0, 100.0)
    with lease("GPU-a", mode="shared", holder="F-A", wait_seconds=0, directory=folder, memory=memory):
        pass


H200 = Gpu(0, "GPU-00000000-0000-0000-0000-000000000200", "NVIDIA H200", "9.0", 1, "NVML", False)


def test_an_exclusive_lease_waits_for_processes_without_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """An exclusive lease waits for such processes, except its own process and its children.

    A shared lease waits for none.
    """
    pynvml = replay("h200", monkeypatch, tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pynvml.running = [(os.getpid(), 1), (child.pid, 1), (os.getppid(), 1)]
    assert [process.pid for process in other_processes(H200, folder)] == [os.getppid()]
    with monkeypatch.context() as patch:
        patch.setattr("harness.execution.lease.list_holders", lambda _: (Holder.of_process(os.getppid(), 0.0),))
        assert other_processes(H200, folder) == ()  # holders of leases are not other_processes
    told_of = rf"held by .* \(pid {os.getppid()}, .*, without a lease"
    held = lease(H200, mode="exclusive", holder="F-A", wait_seconds=0.1, directory=folder)
    with pytest.raises(LeaseUnavailable, match=told_of), held:
        pass
    with lease(H200, mode="shared", holder="F-A", wait_seconds=0, directory=folder):
        pass
    pynvml.running = [(4194999, 1)]
    threading.Timer(0.9, pynvml.running.clear).start()
    reports: list[tuple[Holder, ...]] = []
    with lease(
        H200, mode="exclusive", holder="F-A", wait_seconds=5, directory=folder, on_wait=reports.append
    ) as waited:
        assert waited > 0.4
    assert reports[0][0].text == snapshot
    child.communicate(b"\n")


def test_a_process_that_has_just_ended_is_no_holder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver lists an ended process, such as that of the trial before, for another moment."""
    pynvml = replay("h200", monkeypatch, tmp_path)
    pynvml.running = [(4194999, 1)]
    threading.Timer(0.15, pynvml.running.clear).start()
    with lease(H200, mode="exclusive", holder="F-A", wait_seconds=0, directory=folder):
        pass


def test_without_nvml_nobody_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay("none", monkeypatch, tmp_path)
    with lease(H200, mode="exclusive", holder="F-A", wait_seconds=0, directory=folder):
        pass

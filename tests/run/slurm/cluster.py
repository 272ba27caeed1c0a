"""A real Slurm of two nodes with two simulated GPUs each, private to a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["NoSlurm", "cluster"]

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scancel", "squeue", "scontrol", "sinfo")
_NODES = ("hopper", "spark")
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={controller}
SrunPortRange={first}-{last}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
OverTimeLimit=0
SchedulerParameters=sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=DEFAULT CPUs={cpus} Gres=gpu:2 State=UNKNOWN
NodeName=hopper NodeHostname={host} NodeAddr=127.0.0.1 Port={first_daemon} Features=sm_90
NodeName=spark NodeHostname={host} NodeAddr=127.0.0.1 Port={second_daemon} Features=sm_121
PartitionName=day Nodes=hopper Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5
PartitionName=fleet Nodes=hopper,spark MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=3 PreemptMode=REQUEUE
PartitionName=urgent Nodes=hopper,spark MaxTime=INFINITE State=UP PriorityTier=2
"""


class NoSlurm(Exception):
    """Slurm cannot be started here. The text says why."""


@contextmanager
def cluster(folder: Path, seconds: float = 30.0) -> Iterator[dict[str, str]]:
    """Start munge and Slurm; the environment variables by which clients find them.

    Raises:
        NoSlurm: not installed, not root, or not up within `seconds`.
    """
    lacking = [name for name in _PROGRAMS if _program(name) is None]
    if lacking:
        raise NoSlurm(f"{lacking[0]} is not installed (Debian: apt-get install slurm-wlm munge)")
    if os.geteuid() != 0:
        raise NoSlurm("only root can start a Slurm of its own")
    _configure(folder)
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    environment = {**os.environ, **variables}
    with ExitStack() as daemons:
        _start(daemons, folder, environment, "munged", *_munge_options(folder))
        _await(lambda: (folder / "munge.socket").exists(), "munged", seconds)
        _start(daemons, folder, environment, "slurmctld", "-D")
        for node in _NODES:
            _start(daemons, folder, environment, "slurmd", "-D", "-N", node)
        _await(lambda: _idle(environment), "Slurm", seconds)
        try:
            yield variables
        finally:  # an srun without a controller would wait for it
            subprocess.run(["scancel", "--me"], env=environment, capture_output=True)
            deadline = time.monotonic() + 10
            while not _idle(environment) and time.monotonic() < deadline:
                time.sleep(0.1)


def _configure(folder: Path) -> None:
    for name in ("state", *(f"spool-{node}" for node in _NODES)):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    controller, first, second = _free_ports(3)
    text = _CONFIGURATION.format(
        host=_host(), folder=folder, controller=controller, first_daemon=first, second_daemon=second, first=50000,
        last=59999, cpus=os.cpu_count(),
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)
    gpus = [f"NodeName={node} Name=gpu File={folder}/gpu[0-1]\n" for node in _NODES]
    (folder / "gres.conf").write_text("".join(gpus))
    for index in range(2):
        (folder / f"gpu{index}").touch()


def _munge_options(folder: Path) -> list[str]:
    places = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return ["--foreground", "--force", *(f"--{option}={folder}/munge.{name}" for option, name in places.items())]


def _start(daemons: ExitStack, folder: Path, environment: dict[str, str], name: str, *options: str) -> None:
    program = _program(name)
    assert program is not None
    with open(folder / f"{name}.out", "ab") as log:
        process = subprocess.Popen([program, *options], env=environment, stdout=log, stderr=log)
    daemons.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _idle(environment: dict[str, str]) -> bool:
    asked = subprocess.run(
        ["sinfo", "--noheader", "--format=%t", "--partition=fleet"], env=environment, capture_output=True, text=True
    )
    return asked.stdout.strip() == "idle"


def _await(happened: object, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not happened():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise NoSlurm(f"{what} did not answer within {seconds:g} s")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in bound]


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

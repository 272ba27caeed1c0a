"""F-GB10-PTXAS-ORDER-001: Triton runs the ptxas that its variables name, whatever is on PATH."""

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from falsifiers.nanochat.device_subjects import PtxasChoice
from falsifiers.nanochat.one_kernel import compiled
from harness import NotMeasured, Trial
from harness.machine import toolchain

_ROOT = Path(__file__).parents[2]
_RECORDER = '#!/bin/sh\necho "$*" >> "$0.log"\nexec "{real}" "$@"\n'


@patch.dict(os.environ)
def falsify(trial: Trial[PtxasChoice]) -> None:
    """Compile with one ptxas named and another first on PATH, and check which of them ran."""
    real = _newest()
    named, decoy = (_recorder(trial.workspace / name / "ptxas", real) for name in ("named", "decoy"))
    with trial.subject_fault():
        chosen = dict(trial.subject.variables(named))
    path = chosen.get("PATH", os.environ.get("PATH", ""))
    always = {"TRITON_ALWAYS_COMPILE": "1", "PATH": f"{decoy.parent}{os.pathsep}{path}"}
    ways = {"in this process": _here, "in a new process": _elsewhere}
    compilations, unheeded, by_decoy, without_variables = 0, [], [], []
    for way in trial.parameters["ways"]:
        for capability in trial.parameters["capabilities"]:
            ways[way](capability, {**chosen, **always})
            compilations += 1
            case = f"{capability} {way}"
            if not _ran(named, f"sm_{capability}"):
                unheeded.append(case)
            if _ran(decoy, f"sm_{capability}"):
                by_decoy.append(case)
            for program in (named, decoy):
                program.with_name("ptxas.log").unlink(missing_ok=True)
            ways[way](capability, always)
            if _ran(named, "sm_") or _ran(decoy, "sm_"):
                without_variables.append(case)
    trial.measure(compilations=compilations, unheeded=unheeded, by_decoy=by_decoy, without_variables=without_variables)
    trial.resolve(device="cpu")  # Triton compiles on the host


def _here(capability: int, variables: Mapping[str, str]) -> None:
    """Compile in this process, in which Triton has been imported."""
    with patch.dict(os.environ, variables):
        compiled(capability)


def _elsewhere(capability: int, variables: Mapping[str, str]) -> None:
    """Compile in a process that starts with the variables."""
    command = [sys.executable, "-m", "falsifiers.nanochat.one_kernel", str(capability)]
    done = subprocess.run(
        command, cwd=_ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise NotMeasured(f"Triton does not compile for sm_{capability} here: {done.stderr.strip()[-300:]}")


def _newest() -> str:
    """Return the newest ptxas, which knows every target."""
    tools = [tool for tool in toolchain.ptxas() if tool.path and tool.version]
    newest = max(tools, key=lambda tool: [int(part) for part in str(tool.version).split(".")], default=None)
    if newest is None or "sm_121a" not in newest.details["targets"]:
        raise NotMeasured("no ptxas of this machine knows sm_121a; Triton 3.6 and newer bring one that does")
    return str(newest.path)


def _recorder(program: Path, real: str) -> Path:
    """Make a program that records its arguments, then runs the real one."""
    program.parent.mkdir()
    program.write_text(_RECORDER.format(real=real))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _ran(program: Path, target: str) -> bool:
    """Return whether a recorded program compiled for a target; a request for its version does not count."""
    log = program.with_name("ptxas.log")
    return log.is_file() and any(target in line for line in log.read_text().splitlines())

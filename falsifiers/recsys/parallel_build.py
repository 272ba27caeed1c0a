"""F-BUILD-PAR-001: torch's BuildExtension compiles in parallel with ninja, and one file after another without it.

Compilers are counted, not timed. Each compiler waits at its start for a word from the falsifier. The falsifier watches
the processes of the build until none of them runs or is ready to run. Then no other compiler starts before one ends, so
the waiting ones are those that would run at the same time.
"""

import ctypes
import multiprocessing
import os
import shutil
import time
from collections.abc import Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import psutil

from falsifiers.recsys.program_paths import without
from falsifiers.recsys.tool_subjects import ExtensionBuild
from harness import NotMeasured, Trial

_SECONDS = 600.0
"""A build that takes longer waits for something that this machine does not have."""
_LOOKS = 3
"""How many times in a row every process must be found waiting."""
_PAUSE = 0.005
_ARCHITECTURE = "10.0"
"""For which CUDA is compiled; the source adds it (pull request 399)."""
_SOURCE = 'extern "C" int part_{number}() {{ return {number}; }}\n'
_KERNEL = "__global__ void kernel_{number}(int *x) {{ *x = {number}; }}\n"
_WRAPPER = """#!/bin/sh
case " $* " in
*" -c "*)
    mkfifo "{folder}/$$"
    read -r word < "{folder}/$$"
    ;;
esac
exec "{real}" "$@"
"""


def falsify(trial: Trial[ExtensionBuild]) -> None:
    """Build with ninja on PATH, then without it, and ask the built code for the number of each source."""
    files, suffix = trial.parameters["files"], trial.parameters["suffix"]
    real = _compiler_of(suffix)
    if real is None or shutil.which("ninja") is None:
        missing = "ninja" if real else f"a compiler for {suffix}"
        raise NotMeasured(f"{missing} is not installed, so a build with it cannot be tested")
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        raise NotMeasured("/proc does not show the children of a process, by which those of a build are seen")
    paths = {"with": os.environ.get("PATH", os.defpath), "without": without("ninja", trial.workspace / "programs")}
    for kind, path in paths.items():
        folder = trial.workspace / kind
        starts = _built(trial, folder, _written(folder, files, suffix), real, path)
        trial.measure(
            **{
                f"compiled_{kind}_ninja": sum(starts),
                f"at_once_{kind}_ninja": max(starts, default=0),
                f"missing_{kind}_ninja": _missing(folder, files),
            }
        )
    trial.resolve(device="cpu")


def _compiler_of(suffix: str) -> str | None:
    if suffix == ".cpp":
        return next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    return shutil.which("nvcc", path=str(Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin"))


def _written(folder: Path, files: int, suffix: str) -> list[Path]:
    """Write sources, each with a function that returns its number, and of CUDA with a kernel."""
    (folder / "sources").mkdir(parents=True)
    sources = [folder / "sources" / f"part_{number}{suffix}" for number in range(files)]
    for number, source in enumerate(sources):
        text = _SOURCE if suffix == ".cpp" else _KERNEL + _SOURCE
        source.write_text(text.format(number=number))
    return sources


def _built(trial: Trial[ExtensionBuild], folder: Path, sources: list[Path], real: str, path: str) -> list[int]:
    """Build in a fork; return how many compilers waited each time that nothing else ran."""
    waiting = folder / "waiting"
    waiting.mkdir()
    if sources[0].suffix == ".cu":
        compiler = _toolkit(Path(real).parents[1], folder / "toolkit")
        variables = {"CUDA_HOME": str(folder / "toolkit"), "TORCH_CUDA_ARCH_LIST": _ARCHITECTURE}
    else:
        compiler = folder / "c++"
        variables = {"CC": str(compiler), "CXX": str(compiler)}
    compiler.write_text(_WRAPPER.format(folder=waiting, real=real))
    compiler.chmod(0o755)
    variables["PATH"] = path
    build = multiprocessing.get_context("fork").Process(
        target=_build, args=(trial.subject, sources, folder, variables), daemon=True
    )
    build.start()
    starts = _watched(build, waiting)
    if build.exitcode:
        with trial.subject_fault():
            raise RuntimeError(f"the build ended with {build.exitcode}; the trial's log has its output")
    return starts


def _toolkit(real: Path, copy: Path) -> Path:
    """Make a CUDA toolkit of links to another one, and return where its nvcc belongs."""
    (copy / "bin").mkdir(parents=True)
    for path in [*real.iterdir(), *(real / "bin").iterdir()]:
        if path.name not in ("bin", "nvcc"):
            (copy / path.relative_to(real)).symlink_to(path)
    return copy / "bin" / "nvcc"


def _build(subject: Any, sources: Sequence[Path], folder: Path, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    os.environ.pop("MAX_JOBS", None)
    os.chdir(folder)
    subject.build(sources, folder / "built")


def _watched(build: ForkProcess, waiting: Path) -> list[int]:
    """Release compilers whenever no other process of the build runs, until the build ends."""
    starts: list[int] = []
    released: set[str] = set()
    quiet, before = 0, set[str]()
    deadline = time.monotonic() + _SECONDS
    while build.is_alive():
        if time.monotonic() > deadline:
            _kill(build)
            raise NotMeasured(f"the build did not end within {_SECONDS:g} s")
        held = {path.name for path in waiting.iterdir()} - released
        quiet = quiet + 1 if held and held == before and _all_wait() else 0
        before = held
        if quiet == _LOOKS:
            starts.append(len(held))
            released |= held
            for name in held:
                (waiting / name).write_text("go\n")
        time.sleep(_PAUSE)
    build.join()
    return starts


def _all_wait() -> bool:
    """Return whether no thread of the processes below this one runs, is ready to run, or waits for a disk.

    If the subject has a process of its own, the compilers are below it, and it is below this one too.
    """
    pending = [child.pid for child in psutil.Process().children()]
    try:
        while pending:
            for task in Path(f"/proc/{pending.pop()}/task").iterdir():
                if (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                    return False
                pending += map(int, (task / "children").read_text().split())
    except OSError:  # one has just ended
        return False
    return True


def _kill(build: ForkProcess) -> None:
    for child in psutil.Process(build.pid).children(recursive=True):
        child.kill()
    build.kill()


def _missing(folder: Path, files: int) -> int:
    """Return how many sources' functions the built module lacks."""
    libraries = list((folder / "built").rglob("*.so"))
    if len(libraries) != 1:
        return files
    library = ctypes.CDLL(str(libraries[0]))
    functions = [getattr(library, f"part_{number}", None) for number in range(files)]
    return sum(function is None or function() != number for number, function in enumerate(functions))

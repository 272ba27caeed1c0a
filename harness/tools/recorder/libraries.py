"""Compiles the recorder and the boundary, and says which variables make the CUDA driver load them."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from harness.authoring.faults import NotMeasured
from harness.base import regular_file
from harness.machine.limited_process import Stopped, completed

__all__ = ["DEFECTS", "compiled", "planted", "recorder", "recording"]

DEFECTS: Final = (
    "ptx-module", "ptx-fatbin", "ptx-linked", "ptx-library", "ptx-compiled",
    "out-of-memory", "copy-corrupted", "launch-left-out", "launch-twice", "launches-nothing",
    "library-left-out", "library-relayed", "allocation-swapped",
)  # fmt: skip
"""What boundary.c plants. A colon and a number say at which call: `out-of-memory:3`; `ptx-module:mark` is the first
launch after cuProfilerStart."""

_HERE: Final = Path(__file__).parent
_COMPILE_SECONDS: Final = 120
_CUPTI: Final = "HARNESS_RECORDER_CUPTI"
"""The variable with the libraries of CUPTI to try. You may set it."""
_DRIVER, _REAL_DRIVER = "libcuda.so.1", "libharness_driver.so"


def compiled(source: Path, output: Path, *options: str) -> Path:
    """Compile a C file to a shared library, unless it is there.

    Raises:
        NotMeasured: there is no C compiler, or it failed.
    """
    if output.exists():
        return output
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotMeasured("the recorder needs a C compiler; install gcc, or name one in the variable CC")
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(f".{os.getpid()}")
    command = [compiler, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", str(source)]
    try:
        done = completed([*command, "-o", str(unfinished), *options, "-ldl", "-lpthread"], _COMPILE_SECONDS)
    except Stopped as error:
        raise NotMeasured(f"{compiler} {error}") from error
    if done.returncode:
        raise NotMeasured(f"{compiler} cannot compile {source.name}: {done.stderr[-400:]}")
    unfinished.rename(output)
    return output


def recorder(cache: Path) -> Path:
    """The recorder's library in a cache folder, by the digest of its sources."""
    return compiled(_HERE / "recorder.c", _folder(cache, "recorder") / "librecorder.so")


def recording(library: Path, folder: Path) -> dict[str, str]:
    """The variables with which a CUDA driver loads the recorder; it writes into `folder`, one file a process."""
    return {
        "CUDA_INJECTION64_PATH": str(library),
        "HARNESS_RECORDER_DIR": str(folder),
        _CUPTI: os.environ.get(_CUPTI) or ":".join(map(str, _cupti_libraries())),
    }


def planted(defect: str, driver: Path, cache: Path, before: str) -> dict[str, str]:
    """The variables with which a process finds the boundary, with one defect or none, instead of the driver.

    Args:
        driver: the real driver's library.
        cache: where the boundary is built.
        before: the present value of LD_LIBRARY_PATH.

    Raises:
        ValueError: no such defect.
    """
    if defect and defect.partition(":")[0] not in DEFECTS:
        raise ValueError(f"planted: no defect {defect!r}; there are {', '.join(DEFECTS)}")
    folder = _folder(cache, "boundary", str(driver))
    folder.mkdir(parents=True, exist_ok=True)
    empty = folder / "stand_in.c"
    empty.write_text("")
    stand_in = compiled(empty, folder / "build" / _REAL_DRIVER, f"-Wl,-soname,{_REAL_DRIVER}")
    compiled(
        _HERE / "boundary.c", folder / _DRIVER, "-Wl,--no-as-needed", f"-L{stand_in.parent}", "-lharness_driver",
        f"-Wl,-soname,{_DRIVER}", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip
    for name, to in ((_REAL_DRIVER, driver), (_DRIVER.removesuffix(".1"), Path(_DRIVER))):
        unfinished = folder / f"{name}.{os.getpid()}"
        unfinished.symlink_to(to)
        unfinished.replace(folder / name)
    return {"HARNESS_PLANTED": defect, "LD_LIBRARY_PATH": f"{folder}:{before}".rstrip(":")}


def _folder(cache: Path, name: str, *more: str) -> Path:
    """A folder of the cache that belongs to these sources."""
    digest = hashlib.sha256(" ".join((sysconfig.get_platform(), *more)).encode())
    for source in sorted((*_HERE.glob("*.c"), *_HERE.glob("*.h"))):
        digest.update(regular_file.read(source))
    return cache / f"{name}-{digest.hexdigest()[:16]}"


def _cupti_libraries() -> Sequence[Path]:
    """The libraries of CUPTI on this machine, the newest version first."""
    return sorted(dict.fromkeys(_candidates()), key=lambda path: path.suffix, reverse=True)


def _candidates() -> Iterator[Path]:
    packages = {Path(entry) for entry in (*sys.path, sysconfig.get_path("purelib")) if entry}
    for folder in sorted(packages):
        yield from folder.glob("nvidia/*/lib/libcupti.so.1?")
        yield from folder.glob("triton/backends/nvidia/lib/cupti/libcupti.so.1?")
    for pattern in ("cuda*/lib64", "cuda*/lib", "cuda*/extras/CUPTI/lib64", "cuda*/targets/*/lib"):
        for folder in sorted(Path("/usr/local").glob(pattern)):
            yield from folder.glob("libcupti.so.1?")
    for name in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if name:
            yield from Path(name).glob("libcupti.so.1?")

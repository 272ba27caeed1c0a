"""F-TRITON-OLDER-001: torch's wrapper of Triton kernels can be imported with an older Triton too.

The older one is in a folder on PYTHONPATH: `pip install --no-deps --target older_triton triton==3.6.0`.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from harness import NotMeasured, Trial
from harness.machine.limited_process import Stopped, completed

_FOLDER = "older_triton"
_SECONDS = 250.0
_LOOK = """
import json, sys
scope = {}
exec(sys.argv[1], scope)
import triton
print(json.dumps({"version": triton.__version__, "owner": getattr(scope.get(sys.argv[2]), "__module__", "")}))
"""


class Import(Protocol):
    """How a name is imported; built as `Subject(setting)`."""

    def program(self, module: str, name: str) -> str:
        """Return a program that defines the name as a global."""
        ...


def falsify(trial: Trial[Import]) -> None:
    """Run the program with the older Triton and with the installed one, and search both for the name."""
    module, name = trial.parameters["module"], trial.parameters["name"]
    older = find_spec(_FOLDER)
    if older is None or not older.submodule_search_locations:
        raise NotMeasured(f"{_FOLDER} is not on PYTHONPATH")
    with trial.subject_fault():
        program = trial.subject.program(module, name)
    folder = Path(next(iter(older.submodule_search_locations))).absolute()
    with_older, with_installed = _ended(program, name, [str(folder)]), _ended(program, name, [])
    trial.measure(
        status=with_older["status"],
        owner=with_older["owner"],
        version=with_older["version"],
        status_installed=with_installed["status"],
        version_installed=with_installed["version"],
        found_in_older=_files_with(name, folder / "triton"),
        found_in_installed=_files_with(name, _installed()),
    )
    trial.resolve(device="cpu")


def _ended(program: str, name: str, before: list[str]) -> dict[str, Any]:
    """Run the program in a process with these folders first on its path."""
    search = {"PYTHONPATH": os.pathsep.join([*before, *sys.path])}
    try:
        done = completed([sys.executable, "-c", _LOOK, program, name], _SECONDS, environment={**os.environ, **search})
    except Stopped as error:
        raise NotMeasured(f"the import did not end: {error}") from error
    print(done.stderr[-1000:], flush=True)
    imported = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"version": "", "owner": ""}
    return {**imported, "status": done.returncode}


def _installed() -> Path:
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise NotMeasured("triton is not installed")
    return Path(spec.origin).parent


def _files_with(name: str, folder: Path) -> list[str]:
    """Return the source files of a folder that contain the name."""
    sources = [*folder.rglob("*.py"), *folder.rglob("*.pyi")]
    return sorted(str(path.relative_to(folder)) for path in sources if name in path.read_text(errors="replace"))

"""F-IMPORT-CYCLE-001: a module of an import cycle can be imported after the module that needs it.

The falsifier writes packages with a cycle like that of torch._higher_order_ops.triton_kernel_wrap, and runs the
subject's program in separate processes. In the cycle, the wanted module leads to the first one, which imports a name
from it:

    wanted -> link -> … -> first -> from wanted import NAME

If the import starts with the wanted module, NAME does not exist yet when that line runs. If it starts with the first
one, NAME exists.
"""

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from falsifiers.recsys.tool_subjects import ImportOrder
from harness import NotMeasured, Trial

_SECONDS = 300.0
_MISSING = "import a_module_that_is_not_installed\n"
_LOOK = """
import json, sys
folder, wanted, first, *names = json.loads(sys.argv[1])
if folder:
    sys.path.insert(0, folder)
with open(sys.argv[2]) as program:
    exec(compile(program.read(), sys.argv[2], "exec"), {"__name__": "__main__"})
found = [hasattr(sys.modules.get(module), name) for module, name in zip((wanted, first), names)]
print("\\n" + json.dumps(found.count(False)))
"""


@dataclass(frozen=True)
class _Packages:
    """A folder with packages that have an import cycle."""

    folder: Path | None
    """None for installed packages."""
    wanted: str
    first: str
    last_names: tuple[str, str]
    """The last names that the wanted and the first module define."""


@dataclass(frozen=True)
class _Ended:
    """The result of a program."""

    status: int
    incomplete: int
    """How many of the wanted and the first module lack their last name."""
    error: str


def falsify(trial: Trial[ImportOrder]) -> None:
    """Run the program on cycles of several lengths, and on one with a module that is really missing."""
    links: list[int] = trial.parameters["links"]
    statuses, incomplete, hidden = [], [], []
    for position, count in enumerate(links):
        packages = _written(trial.workspace / str(position), count, trial.seed + position)
        alone = _ran(trial, packages, f"import {packages.wanted}\n")
        if "circular import" not in alone.error:
            raise NotMeasured(
                f"this Python imports the cycle without help, or fails for another reason: {alone.error[-300:]}"
            )
        ended = _ran(trial, packages, _program(trial, packages))
        statuses.append(ended.status)
        incomplete.append(ended.incomplete)
        broken = _written(trial.workspace / f"{position}-broken", count, trial.seed + position, _MISSING)
        hidden.append(int(_ran(trial, broken, _program(trial, broken)).status == 0))
    trial.measure(statuses=statuses, incomplete=incomplete, hidden_errors=hidden)
    if trial.parameters["torch"]:
        first, wanted = trial.parameters["torch"]
        of_torch = _Packages(None, wanted, first, tuple(trial.parameters["torch_names"]))
        ended = _ran(trial, of_torch, _program(trial, of_torch))
        alone = _ran(trial, of_torch, f"import {wanted}\n")
        trial.measure(torch_status=ended.status, torch_incomplete=ended.incomplete, torch_status_alone=alone.status)
    trial.resolve(device="cpu")


def _program(trial: Trial[ImportOrder], packages: _Packages) -> str:
    with trial.subject_fault():
        return trial.subject.program(packages.first, packages.wanted)


def _written(folder: Path, links: int, seed: int, missing: str = "") -> _Packages:
    """Write a package with a cycle of `links` modules between the wanted and the first one."""
    root = f"ring{random.Random(seed).randrange(10**6)}"  # noqa: S311 - a name, and no secret
    wanted, first = f"{root}.operators.wrapped", f"{root}.inductor.dependencies"
    between = [f"{root}.link{number}" for number in range(links)]
    chain = [wanted, *between, first]
    texts = {module: f"import {after}\n" for module, after in pairwise(chain)}
    texts[wanted] += f"{missing}NAME = 1\n"
    texts[first] = f"from {wanted} import NAME\nDONE = NAME\n"
    for module, text in texts.items():
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for package in path.relative_to(folder).parents:
            (folder / package / "__init__.py").touch()
    return _Packages(folder, wanted, first, ("NAME", "DONE"))


def _ran(trial: Trial[Any], packages: _Packages, program: str) -> _Ended:
    file = trial.workspace / "program.py"
    file.write_text(program)
    look = json.dumps([packages.folder and str(packages.folder), packages.wanted, packages.first, *packages.last_names])
    isolated = ["-IS"] if packages.folder else []  # an installed package needs its site, and its variables
    try:
        done = subprocess.run(
            [sys.executable, *isolated, "-c", _LOOK, look, str(file)], capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"a program that imports {packages.wanted} did not end within {_SECONDS:g} s") from error
    print(done.stderr[-2000:], flush=True)
    incomplete = 2 if done.returncode else int(done.stdout.splitlines()[-1])
    return _Ended(done.returncode, incomplete, done.stderr)

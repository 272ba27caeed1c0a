"""F-COUNT-SOURCE-001: pytest collects from the source's own tests the cases that the source states."""

import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from harness import NotMeasured, Trial
from harness.machine.limited_process import Stopped, completed

_SECONDS = 200.0
_CASES = "SOURCE_CASES"
_STATUSES = (0, 1, 5)
"""pytest's statuses after a collection that goes on: all well, broken files, no tests."""

Cases = Mapping[str, Mapping[str, str]]
"""By id, the values of each parameter as Python writes them."""


class Files(Protocol):
    """Tests for pytest; built as `Subject(setting)`."""

    def files(self) -> Mapping[str, str]:
        """Return the text of each test file, of conftest.py and of pytest.ini, by name."""
        ...


def falsify(trial: Trial[Files]) -> None:
    """Collect all files, then the cases of one that remain after the filter."""
    parameters = trial.parameters
    folder = trial.workspace / "suite"
    folder.mkdir()
    with trial.subject_fault():
        files = trial.subject.files()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    names: list[str] = parameters["files"]
    broken, cases = _collected(folder, [])
    counts = Counter(case.partition("::")[0] for case in cases)
    _, selected = _collected(folder, ["-k", parameters["filter"], parameters["filtered_file"]])
    axes = {name: values.split(" | ") for name, _, values in (axis.partition(": ") for axis in parameters["axes"])}
    chosen = Counter(tuple(values.get(name, "") for name in axes) for values in selected.values())
    stated = set(itertools.product(*axes.values()))
    trial.measure(
        collected=[counts[name] for name in names],
        differences=[counts[name] - count for name, count in zip(names, parameters["cases"], strict=True)],
        broken=broken,
        unfiltered=counts[parameters["filtered_file"]],
        selected=len(selected),
        missing=[", ".join(cell) for cell in sorted(stated - chosen.keys())],
        unstated=[", ".join(cell) for cell in sorted(chosen.keys() - stated)],
    )
    trial.resolve(device="cpu")


def _collected(folder: Path, arguments: Sequence[str]) -> tuple[list[str], Cases]:
    """Return pytest's messages about files that it cannot collect, and the cases that would run."""
    cases_file = folder.parent / "cases.json"
    cases_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "--rootdir", str(folder), "-c", str(folder / "pytest.ini")]
    variables = {
        "PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1", _CASES: str(cases_file),
    }  # fmt: skip
    cd = ["sh", "-c", 'cd "$0" && exec env -u PYTEST_ADDOPTS "$@"', str(folder)]
    try:
        done = completed([*cd, *command, *(arguments or ["."])], _SECONDS, environment={**os.environ, **variables})
    except Stopped as error:
        raise NotMeasured(f"pytest did not collect the source's tests: {error}") from error
    print(done.stdout[-2000:], done.stderr[-2000:], flush=True)
    if done.returncode not in _STATUSES or not cases_file.exists():
        raise NotMeasured(f"pytest ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    broken = [line for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    cases: Cases = json.loads(cases_file.read_text(encoding="utf-8"))
    return broken, cases

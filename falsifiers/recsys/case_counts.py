"""F-COUNT-001: pytest collects as many cases from each test file as the source says."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from falsifiers.recsys.tool_subjects import Suite
from harness import NotMeasured, Setting, Trial

_SECONDS = 500.0
_CASE = re.compile(r"^(\S+\.py)::")
_SECTION = re.compile(r"^_+ ERROR collecting (\S+) _+$", re.MULTILINE)
_ABSENT = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_STATUSES = (0, 2, 5)
"""pytest's statuses after a collection: all well, broken files, no tests."""


class File:
    """A folder with the tests of the source: `--subject file:FOLDER`. See `Suite`."""

    def __init__(self, setting: Setting) -> None:
        """The parameter `trainer` has its path, from the project's root."""
        self._folder = Path(setting.parameters["trainer"]).absolute()

    def folder(self) -> Path:
        return self._folder


def falsify(trial: Trial[Suite]) -> None:
    """Collect the named files, and compare their numbers of cases with the stated ones."""
    with trial.subject_fault():
        folder = trial.subject.folder()
    names: list[str] = trial.parameters["files"]
    paths = [path for path in sorted(folder.rglob("test_*.py")) if path.name in names]
    if not paths:
        raise NotMeasured(f"{folder} has none of {', '.join(names)}")
    status, output = _collected(folder, sorted({path.parent for path in paths}))
    beginning, *sections = _SECTION.split(output)
    broken = {name: text for name, text in zip(sections[::2], sections[1::2], strict=True) if Path(name).name in names}
    if absent := sorted(set(_ABSENT.findall(beginning + "".join(broken.values())))):
        raise NotMeasured(f"tests cannot be collected, because they import what is not installed: {', '.join(absent)}")
    if status not in _STATUSES:
        raise NotMeasured(f"pytest ended with {status}: {output.strip()[-300:]}")
    counts = Counter(Path(match[1]).name for line in output.splitlines() if (match := _CASE.match(line)))
    collected = [counts[name] for name in names]
    trial.measure(
        collected=collected,
        differences=[count - stated for count, stated in zip(collected, trial.parameters["cases"], strict=True)],
        broken=sorted(broken),
    )
    trial.resolve(device="cpu")


def _collected(folder: Path, places: list[Path]) -> tuple[int, str]:
    """Return pytest's exit status and the output of its collection.

    Whole folders are collected, because a conftest.py cannot exclude a file that the command names. Plugins of this
    environment are not loaded.
    """
    search = os.pathsep.join([str(folder), str(folder.parent), os.environ.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "-o", "addopts=",
        "--rootdir", str(folder), *map(str, places),
    ]  # fmt: skip
    variables = {"PYTHONPATH": search, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_SECONDS,
            env={**os.environ, **variables},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"pytest did not collect {folder} within {_SECONDS:g} s") from error
    print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
    return done.returncode, f"{done.stdout}\n{done.stderr}"

"""Run the tests of the module in which a working tree differs from its commit: Cosmic Ray's test command.

Exits with 0 if they pass, which is a mutant that survives, and with 1 if one fails.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

UNCHANGED = "unchanged.json"
"""Beside the trees: the seconds that each file of tests takes without a mutant, and its tests that fail there."""
CACHE = "build/cache"
"""Where pytest records these failures."""
BYTES = 14_000_000_000
"""The memory of a test process. A mutant of a limit can ask for all there is."""
WHOLE = "tests/test_core.py"
"""The tests of what holds of every module."""
POOL = ("contract", "judging", "evidence", "lint", "search", "run")
"""Folders of tests/ where a module's tests are looked for."""

ELSEWHERE = {
    "harness/contract/consistency.py": ["tests/contract/test_calibration.py"],
    "harness/contract/entry_point.py": ["tests/contract/test_loader.py", "tests/contract/test_loader.py"],
    "harness/tools/planting/equivalent.py": [
        "tests/tools/planting/test_schedule.py",
        "tests/tools/planting/test_command.py",
    ],
    "harness/contract/imports.py": ["tests/evidence/test_staleness.py"],
    "harness/contract/mentions.py": ["tests/cli/test_status.py"],
    "harness/contract/model.py": [
        "tests/contract/test_loader.py",
        "tests/contract/test_calibration.py",
        "tests/judging/test_judge.py",
    ],
    "harness/evidence/artifacts.py": ["tests/evidence/test_seal.py"],
    "harness/evidence/bundle_checks.py": ["tests/evidence/test_verification.py"],
    "harness/evidence/atomic_dir.py": ["tests/evidence/test_seal_refused.py", "tests/run/test_engine.py"],
    "harness/tools/sign/keys.py": ["tests/cli/test_signing.py"],
    "harness/evidence/survey.py": ["tests/cli/test_list.py", "tests/cli/test_status.py"],
    "harness/evidence/untrusted.py": ["tests/evidence/test_verification.py", "tests/evidence/test_hostile.py"],
}
"""Tests of modules that no test needs to import."""


def select(tree: Path, module: str) -> list[str]:
    """The files with a module's tests: those named after it, those that import it, those listed above, and WHOLE.

    If there is none but WHOLE, these are all tests of the package. Tests of other modules would notice some defects
    too, but a module should not depend on them, and each survivor would take minutes.
    """
    _, package, file = Path(module).parts
    name = Path(file).stem
    imports = re.compile(rf"^\s*from harness\.{package}(\.{name} import| import .*\b{name}\b)", flags=re.MULTILINE)
    files = sorted(path for folder in POOL for path in (tree / "tests" / folder).glob("test_*.py"))
    own = [path for path in files if path.parent.name == package and path.stem.startswith(f"test_{name}")]
    own += [path for path in files if path not in own and imports.search(path.read_text(encoding="utf-8"))]
    found = [path.relative_to(tree).as_posix() for path in own]
    found += [path for path in ELSEWHERE.get(module, ()) if path not in found]
    return [*(found or [f"tests/{package}"]), WHOLE]


def run(files: list[str], *options: str) -> int:
    """Return pytest's exit status for these files of the working tree.

    The random cases are the same each time, and a run leaves nothing behind that another one could read.
    """
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES if most == resource.RLIM_INFINITY else min(BYTES, most), most))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--hypothesis-seed=0", *options, *files]
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode


def main() -> int:
    """Run the tests of the module that changed in the tree argv[1]. If files follow, run these and record failures."""
    tree = Path(sys.argv[1])
    os.chdir(tree)
    if files := sys.argv[2:]:
        return run(files, "-o", f"cache_dir={CACHE}")
    diff = subprocess.run(["git", "diff", "--name-only", "--", "harness"], capture_output=True, text=True, check=True)
    (module,) = diff.stdout.split()
    failing = {test for file in json.loads((tree.parent / UNCHANGED).read_text()).values() for test in file["failing"]}
    files = [file for file in select(tree, module) if file not in failing]
    leave_out = (f"--deselect={test}" if "::" in test else f"--ignore={test}" for test in sorted(failing))
    return int(run(files, "-x", "-p", "no:cacheprovider", *leave_out) != 0)


if __name__ == "__main__":
    sys.exit(main())

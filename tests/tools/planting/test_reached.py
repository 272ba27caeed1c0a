"""The reached lines are those of the project's modules, also in forks, and none of a library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.tools.planting.reached import read_reached

PROGRAM = """\
import os, sys
from pathlib import Path
from harness.tools.planting.reached import Reached

root = Path(sys.argv[1])
with Reached(root, [str(root)], root / "reached.json"):
    import ours
    ours.work()
os._exit(0)
"""
OURS = """\
import os, resource, signal
import theirs
def work():
    theirs.work()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    if not child:
        pass
"""


def test_forks_count_and_libraries_do_not(tmp_path: Path) -> None:
    """A forked child counts, even if it may write no file and is killed.

    A library on PYTHONPATH does not, even in the project.
    """
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "theirs.py").write_text("def work():\n    pass\n")
    (tmp_path / "ours.py").write_text(OURS)
    paths = [str(tmp_path), str(tmp_path / "wheels"), os.environ.get("PYTHONPATH", ""), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, env=environment, timeout=60)
    lines, modules = read_reached(tmp_path / "reached.json")
    assert lines == {"ours.py": frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})}
    assert "theirs" in modules
    assert "ours" not in modules

"""Thirty scripts that sleep for two seconds, four at a time, under three tools.

The tools are the harness, pytest-xdist, and ReFrame with its asynchronous policy, if it is installed. The ratio is to
30 * 2 s / 4.

    python -m benchmarks.sleeping_scripts
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

from benchmarks.adding_project import contract, project
from benchmarks.commands import clock, harness

SCRIPTS, SECONDS, LANES = 30, 2.0, 4
REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Sleeps(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'sleep'
    executable_opts = ['{seconds}']
    number = parameter(range({scripts}))

    @sanity_function
    def ended(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""
REFRAME_SITE = """
site_configuration = {{
    'systems': [{{'name': 'here', 'hostnames': ['.*'], 'partitions': [{{
        'name': 'cpu', 'scheduler': 'local', 'launcher': 'local', 'environs': ['builtin'], 'max_jobs': {lanes}}}]}}],
    'environments': [{{'name': 'builtin'}}],
}}
"""


def scripts(folder: Path) -> pd.DataFrame:
    """The same sleeping scripts under each tool."""
    project(folder, SECONDS)
    shutil.rmtree(folder / "contracts")
    (folder / "contracts").mkdir()
    for number in range(SCRIPTS):
        claim = {**contract(SECONDS), "id": f"F-BENCH-ADD-{number:03}"}
        place = folder / "contracts" / str(claim["id"]) / "contract.json"
        place.parent.mkdir()
        place.write_text(json.dumps(claim))
    body = f"import time\nimport pytest\n@pytest.mark.parametrize('n', range({SCRIPTS}))\n"
    (folder / "test_sleep.py").write_text(f"{body}def test_sleeps(n):\n    time.sleep({SECONDS})\n")
    (folder / "sleeps.py").write_text(REFRAME.format(seconds=SECONDS, scripts=SCRIPTS))
    (folder / "site.py").write_text(REFRAME_SITE.format(lanes=LANES))
    arms = {"harness": harness(["--all", "--no-mutants", "-j", str(LANES)], folder)[0]}
    with_xdist = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(LANES), "test_sleep.py"]
    arms["pytest-xdist"] = clock(with_xdist, folder)
    if (reframe := shutil.which("reframe")) is not None:
        asynchronous = [reframe, "-C", "site.py", "-c", "sleeps.py", "-r", "--exec-policy=async"]
        arms["ReFrame, asynchronous"] = clock(asynchronous, folder)
    least = SCRIPTS * SECONDS / LANES
    return pd.DataFrame([{"tool": name, "wall (s)": arm, "ratio": arm / least} for name, arm in arms.items()]).round(3)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name:
        print(scripts(Path(name) / "scripts").to_string(index=False))


if __name__ == "__main__":
    main()

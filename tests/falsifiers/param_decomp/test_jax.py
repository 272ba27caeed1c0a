"""The claims about JAX, in processes of their own: JAX starts once in a process, with its devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="JAX is not installed: pip install '.[jax]'")

ROOT = Path(__file__).parents[3]


def test_the_stated_peaks_exclude_each_other() -> None:
    """The one clause that their source states falsely fails, and every mutant dies of another one."""
    command = ["run", "F-PD-JAX-PEAKS-001", "--all-mutants", "--scratch"]
    ended = subprocess.run([sys.executable, "-m", "harness", *command], cwd=ROOT, capture_output=True, text=True)
    assert "0 PASS, 1 FAIL" in ended.stdout, ended.stdout + ended.stderr
    assert "5 of 5 mutants killed" in ended.stdout
    assert "longer-needs-more" in ended.stdout


_TRIAL = """
import json, sys
from pathlib import Path
from falsifiers.param_decomp.compiled_step import falsify
from tests.falsifiers.in_process import judged
from harness.base.vocabulary import Outcome
from harness.contract.project import Project

contract = Project.find(Path("contracts/param_decomp")).contract("F-PD-JAX-STEP-001")
judgment = judged(contract, contract.subject, Path(sys.argv[1]))
print(json.dumps([clause.id for clause in judgment.clauses if clause.outcome is not Outcome.PASS]))
"""


def test_the_compiled_step_is_the_stated_one(tmp_path: Path) -> None:
    """Every clause of the healthy subject passes on eight simulated devices."""
    ended = subprocess.run([sys.executable, "-c", _TRIAL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(ended.stdout.splitlines()[-1]) == [], ended.stderr

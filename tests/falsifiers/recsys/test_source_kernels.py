"""The falsifier of the source's Triton operators, on a small tree in place of the source."""

from pathlib import Path

import pytest

from falsifiers.recsys.reference.source_kernels import SourceKernels
from falsifiers.recsys.source_kernels import falsify
from harness import Setting
from harness.execution.worker_trial import WorkerTrial
from tests.falsifiers.distill.trials import Heard
from tests.falsifiers.in_process import PROJECT


def test_cases_are_counted_where_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that fails is no passed one, and the allocated memory is that of the process of the tests."""
    files = {
        "hstu/ops/__init__.py": "ANSWER = 1\n",
        "hstu/test/test_answer.py": "from ops import ANSWER\n\n\ndef test_one():\n    assert ANSWER == 1\n\n\n"
        "def test_two():\n    assert ANSWER == 2\n",
        "commons/__init__.py": "",
        "commons/ops/__init__.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "hstu")
    setting = Setting({"files": ["test_answer.py"], "cases": [2]}, "cpu", 0, tmp_path / "workspace", tmp_path)
    heard = Heard()
    contract = PROJECT.contract("F-HSTU-SOURCE-TRITON-001")

    WorkerTrial(setting, tmp_path, contract.measurements, heard).run(falsify, SourceKernels)

    failed = heard.measurements.pop("failed")
    assert heard.measurements == {"passed": [1], "differences": [-1], "broken": []}
    assert len(failed) == 1
    assert "test_two" in failed[0]
    assert heard.resolved == {"device": "cpu", "allocated_bytes": 0}

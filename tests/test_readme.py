"""README.md: short, and its example claim is a proven PASS in a new project."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.cli.harness_command import COMMAND, environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIM = "F-SOFTMAX-SHIFT-001"


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150


def test_its_claim_passes_and_its_mutant_is_killed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    def harness(*words: str) -> subprocess.CompletedProcess[str]:
        where = environment(tmp_path)
        return subprocess.run([*COMMAND, *words], cwd=project, env=where, capture_output=True, text=True, timeout=120)

    assert harness("init").returncode == 0
    for path, text in re.findall(r"^```\w+ (\S+/\S+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL):
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text(text, encoding="utf-8")
    assert harness("lint").returncode == 0
    (record,) = json.loads(harness("run", CLAIM, "--json", "-").stdout)["records"]
    assert (record["verdict"], record["proven"]) == ("PASS", True)
    assert [mutant["id"] for mutant in record["mutants"]] == ["clamped"]

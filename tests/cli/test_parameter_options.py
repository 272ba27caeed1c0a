"""`harness run -P`: a value that the contract does not allow is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.execution.projects import write_project

CLAIM = "F-TOY-SORT-001"
DECLARED = {
    "type": "object",
    "properties": {
        "items": {"type": "integer", "minimum": 1, "maximum": 50, "x-unit": "numbers"},
        "how": {"enum": ["well", "not at all", "slowly"]},
        "order": {"type": "string", "pattern": "^(up|down)$"},
        "sizes": {"type": "array", "minItems": 1, "items": {"type": "integer", "maximum": 9}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project whose claim declares its parameters. One of them is not set in its profile."""
    write_project(tmp_path)
    path = tmp_path / "contracts" / CLAIM / "contract.json"
    contract = json.loads(path.read_text())
    contract["profiles"]["reduced"]["parameters"].update(order=None, sizes=[2, 3])
    path.write_text(json.dumps({**contract, "parameters": DECLARED}))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("items=-1", "items cannot be -1; F-TOY-SORT-001 allows: an integer, at least 1 numbers, at most 50 numbers"),
        ("items=2.5", "items cannot be 2.5"),
        ("items=2.0", "items must be a whole number, not 2.0"),
        ("how=badly", "allows: well, not at all or slowly"),
        ("itemz=3", "no parameter 'itemz'; did you mean items?"),
        ("colour=red", "no parameter 'colour'; it has items, how, order, sizes"),
        ("sizes=4", "an array, at least 1 item; each item: an integer, at most 9; as in -P 'sizes=[2, 3]'"),
        ("sizes=[4, 10]", "sizes cannot be [4, 10]; F-TOY-SORT-001 allows: an array, at least 1 item; each item: an"),
        ("order=sideways", "allows: a string, of the form ^(up|down)$, or null"),
        ("items=null", "items cannot be null"),
    ],
)
def test_refused(folder: Path, given: str, said: str) -> None:
    """The exit status is 2, and there is no evidence."""
    done = harness(folder, "run", CLAIM, "-P", given)
    assert done.returncode == ExitStatus.REFUSED
    assert said in " ".join(done.stderr.split())
    assert not (folder / "evidence").exists()


@pytest.mark.parametrize("given", ["items=50", "how=slowly", "order=up", "order=null"])
def test_allowed(folder: Path, given: str) -> None:
    """A value within the bounds runs. A mutant may have a value that a user may not choose."""
    done = harness(folder, "run", CLAIM, "-P", given)
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr


def test_a_trainers_parameter_may_have_the_name_of_the_claims(folder: Path) -> None:
    """The claim's is meant, so its bounds hold; the text names the remedy."""
    trainer = 'name = "mine"\n[parameters]\nitems = 1\n[command]\nline = ["{python}", "{items}"]\n'
    step = '[[log.line]]\nevent = "step"\npattern = \'step (?P<step>[0-9]+)\'\n[files]\nexport = "{output}/model"\n'
    (folder / "mine.toml").write_text(trainer + step)
    done = harness(folder, "run", CLAIM, "--subject", "command:mine.toml", "-P", "items=-1")
    assert done.returncode == ExitStatus.REFUSED, done.stdout
    assert "at most 50 numbers; if items is your trainer's own, give it another name there" in done.stderr

"""`harness plant` as a user types it, in a project whose falsifier misses two defects of its subject."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import harness as harness_package
from harness.base.schemas import problems
from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.cli.outputs import assert_follows_schema
from tests.contracts import put
from tests.execution.misbehaving import CONTRACT

CLAIM = "F-TOY-SUM-001"
SUBJECT = """\
ZERO = 0
[0][ZERO]
UNUSED = 5


class Sum:
    def __init__(self, setting):
        pass

    def total(self, items):
        if len(items) > 1000:
            return 0
        result = ZERO
        for item in items:
            result += item
        return result
"""
HANGS = """\
import time


class Sum:
    def __init__(self, setting):
        pass

    def total(self, items):
        result = 0
        while result < sum(items):
            result += 1
            time.sleep(0.05)
        return result
"""
CACHES = """\
KEPT = 3


class Sum:
    def __init__(self, setting):
        self.place = setting.cache / "start"

    def total(self, items):
        place = self.place
        if not place.exists():
            place.write_text(str(KEPT))
        return sum(items) + int(place.read_text()) - 3
"""
FORKS = """\
import os
from pathlib import Path


class Sum:
    def __init__(self, setting):
        pass

    def total(self, items):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            self.work(writing, items)
        os.waitpid(child, 0)
        start = Path(__file__).with_name("start.cu").read_text()
        return int(os.read(reading, 9)) + int(start.split("=")[1].strip(" ;"))

    def work(self, writing, items):
        os.write(writing, str(1 * sum(items)).encode())
        os.kill(os.getpid(), 9)
"""
UNFORKED = """\
import os
import device


class Sum:
    def __init__(self, setting):
        assert os.getpid() == device.OWNER

    def total(self, items):
        return sum(items) + 0
"""
FALSIFIER = """\
def falsify(trial):
    with trial.subject_fault():
        total = trial.subject.total([1, 2, trial.parameters["last"]])
        other = trial.subject.total([1, 2])
    trial.measure(inversions=abs(total - 7) + abs(other - 3))
    trial.resolve(device="cpu")
"""
MUTANT = """\
from toy.summing import Sum


class Nothing(Sum):
    def total(self, items):
        return 0
"""
MISSED = {"if len(items) >= 1000:", "if len(items) > 1001:"}
REMEMBERED = {
    'return globals().setdefault("_kept_total", (result))',
    'return globals().setdefault(("_kept_total", str([getattr(one, "shape", None) '
    "for one in list(locals().values())])), (result))",
}


def write(root: Path, subject: str, seconds: float = 20.0) -> Path:
    """A project with this subject, and a limit on its trials."""
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "toy").mkdir()
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "summing.py").write_text(subject)
    (root / "toy" / "adversary.py").write_text(FALSIFIER)
    (root / "contracts").mkdir()
    limits = {"requires": {"device": "any"}, "parameters": {"last": 4}, "limits": {"seconds": seconds}}
    contract: dict[str, Any] = {**CONTRACT, "id": CLAIM, "profiles": {"reduced": limits}}
    contract |= {"falsifier": "toy.adversary:falsify", "subject": "toy.summing:Sum"}
    (root / "toy" / "broken.py").write_text(MUTANT)
    mutant = {"id": "nothing", "subject": "toy.broken:Nothing", "violates": ["inversions.maximum"], "defect": "a zero"}
    contract["mutants"] = [mutant]
    put(root / "contracts" / CLAIM / "contract.json", json.dumps(contract))
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The project with the plain subject."""
    return write(tmp_path, SUBJECT)


def plant(folder: Path, *options: str) -> tuple[int, dict[str, Any], list[str]]:
    """The exit status, the JSON document, and one line per decided defect."""
    done = harness(folder, "plant", CLAIM, "--json", "-", *options)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr.splitlines()


def fates(document: dict[str, Any]) -> dict[str, set[str]]:
    """The changed lines, by fate."""
    found: dict[str, set[str]] = {}
    for defect in document["defects"]:
        found.setdefault(defect["fate"], set()).add(defect["after"])
    return found


def test_two_survive(folder: Path) -> None:
    """Two defects survive, the others are killed, and one cannot be imported.

    A second run tries only the rest, until a source changes.
    """
    done = harness(folder, "plant", f"{CLAIM[:-3]}*", "--json", "planted.json")
    document = json.loads((folder / "planted.json").read_text())
    assert problems("planting", document) == []
    assert_follows_schema("plant", document)
    assert done.returncode == ExitStatus.FAIL
    killed = {"if (not (len(items) > 1000)):", "result -= item", "pass", *REMEMBERED}
    assert fates(document) == {"killed": killed, "survived": MISSED, "not started": {"ZERO = 1"}}
    assert round(document["total"]["score"], 3) == 0.714
    assert len(done.stderr.splitlines()) == 8
    (killing,) = [defect["attempts"][-1] for defect in document["defects"] if defect["after"] == "pass"]
    assert (killing["claim"], killing["clauses"]) == (CLAIM, ["inversions.maximum"])
    assert document["sources"].keys() == {"toy/__init__.py", "toy/summing.py"}
    assert (folder / "toy" / "summing.py").read_text() == SUBJECT
    assert not (folder / "evidence").exists()
    table = done.stdout.splitlines()
    assert "+        if len(items) >= 1000:" in table
    assert table[-1].startswith("2 survived: make a falsifier see them")
    rows = {line.split()[0]: line.split()[1:] for line in table if line.startswith("  ")}
    assert rows["comparison"] == ["0", "1", "0", "0.0%"]
    assert rows["all"] == rows["toy/summing.py"] == ["5", "2", "1", "71.4%"]

    (state,) = (folder / "cache" / "planting").glob(f"{CLAIM}-*.jsonl")
    *whole, torn = [line for line in state.read_text().splitlines() if line]
    state.write_text("\n".join([*whole, torn[:20]]))
    code, same, tried = plant(folder)
    assert (code, same["total"], len(tried)) == (ExitStatus.FAIL, document["total"], 1)

    _, again, tried = plant(folder, "--again", "planted.json")
    assert ({defect["after"] for defect in again["defects"]}, tried) == (MISSED, [])
    assert harness(folder, "plant", CLAIM, "--part", "3/2").returncode == ExitStatus.REFUSED
    assert harness(folder, "plant", "F-NONE-*").returncode == ExitStatus.REFUSED

    (folder / "toy" / "adversary.py").write_text(f"{FALSIFIER}# another falsifier\n")
    assert len(plant(folder, "--budget", "10s", "--limit", "2")[2]) == 2


def test_equivalent_defects_are_not_counted(folder: Path) -> None:
    """An entry without a match is named. A file with an invalid entry is refused."""
    path = folder / "contracts" / CLAIM / "equivalent.json"
    entries = [
        {"file": "toy/summing.py", "within": "Sum.total", "before": "if len(items) > 1000:", "after": after,
         "reason": "the claim is about short lists"}
        for after in sorted(MISSED)
    ]  # fmt: skip
    gone = {**entries[0], "after": "if len(items) > 1002:"}
    path.write_text(json.dumps({"id": CLAIM, "equivalent": [*entries, gone]}))
    code, document, tried = plant(folder)
    assert (code, document["total"]["survived"], document["total"]["equivalent"], len(tried)) == (0, 0, 2, 6)
    assert [defect["after"] for defect in document["claims"][0]["unmatched"]] == [gone["after"]]

    path.write_text(json.dumps({"id": CLAIM, "equivalent": [{**gone, "reason": "no"}]}))
    refused = harness(folder, "plant", CLAIM)
    assert refused.returncode == ExitStatus.REFUSED
    assert "/equivalent/0/reason" in refused.stderr
    assert harness(folder, "list").returncode == ExitStatus.PASS


def test_patches_of_a_user(folder: Path) -> None:
    """Each is tried by every claim that imports its file, on whatever line it is, and counts by its kind."""
    (folder / "toy" / "unused.py").write_text("A = 1\n")
    patch = {"file": "toy/summing.py", "within": "Sum.total"}
    patches = [
        {**patch, "kind": "state", "before": "result = ZERO\nfor item",
         "after": "result = self.__dict__.setdefault('sum', 3)\nfor item"},
        {**patch, "kind": "sizes", "before": "return 0", "after": "return 1"},
        {"file": "toy/unused.py", "within": "", "kind": "sizes", "before": "A = 1", "after": "A = 2"},
    ]  # fmt: skip
    place = folder / "mine.json"
    place.write_text(json.dumps({"patches": patches}))
    code, document, _ = plant(folder, "--patches", "mine.json")
    assert document["sources"].keys() == {patch["file"] for patch in patches}
    assert problems("planting", document) == []
    assert (code, fates(document)) == (
        ExitStatus.FAIL,
        {"killed": {"result = self.__dict__.setdefault('sum', 3)"}, "survived": {"return 1"}},
    )
    assert {operator["name"]: operator["score"] for operator in document["operators"]} == {"state": 1.0, "sizes": 0.0}
    assert "not tried: toy/unused.py:1:sizes:0: " in harness(folder, "plant", CLAIM, "--patches", "mine.json").stdout

    for wrong in ({**patches[0], "before": "absent"}, {"file": "toy/summing.py"}):
        place.write_text(json.dumps({"patches": [wrong]}))
        assert harness(folder, "plant", CLAIM, "--patches", "mine.json").returncode == ExitStatus.REFUSED


def test_a_defect_that_hangs_is_ended(tmp_path: Path) -> None:
    """The limit of the trial ends a defect that hangs."""
    _, document, _ = plant(write(tmp_path, HANGS, seconds=1.5), "--jobs", "4")
    tried = [(defect["after"], defect["attempts"][-1]) for defect in document["defects"]]
    hung = {after: attempt["clauses"] for after, attempt in tried if attempt["seconds"] > 1.4}
    assert hung.keys() >= {"result -= 1", "pass"}
    assert set(map(tuple, hung.values())) == {("subject.completes",)}
    assert document["total"]["crashed"] >= len(hung)


def test_the_budget_ends_trials(tmp_path: Path) -> None:
    """A trial that was cut short counts as untried. If nothing was tried, nothing ran."""
    folder = write(tmp_path, HANGS, seconds=60)
    _, document, _ = plant(folder, "--budget", "3s", "--jobs", "1")
    assert not any(attempt["seconds"] > 50 for defect in document["defects"] for attempt in defect["attempts"])
    untried = [defect for defect in document["defects"] if defect["fate"] == "not tried"]
    assert document["total"]["untried"] == len(untried)
    assert untried or document["claims"][0]["obstacle"]
    code, document, _ = plant(folder, "--budget", "0.01s")
    assert (code, document["defects"]) == (ExitStatus.NOT_MEASURED, [])
    assert document["claims"][0]["obstacle"]
    assert harness(folder, "plant", CLAIM, "--budget", "20").returncode == ExitStatus.REFUSED


def test_a_defect_in_code_that_fills_the_cache(tmp_path: Path) -> None:
    """The healthy subject's cache does not hide the defect, and the defect leaves nothing in the cache."""
    code, document, _ = plant(write(tmp_path, CACHES))
    assert {"KEPT = 4", "pass"} <= fates(document)["killed"]
    suppressed = 'with __import__("contextlib").suppress(Exception): place.write_text(str(KEPT))'
    assert (code, fates(document)["survived"]) == (ExitStatus.FAIL, {suppressed})  # nothing is raised here


def test_forks_and_kernels_are_planted(tmp_path: Path) -> None:
    """The lines of a killed child count. So does the text of a kernel beside the module."""
    folder = write(tmp_path, FORKS, seconds=2)
    (folder / "toy" / "start.cu").write_text("int start = 0;")
    _, document, _ = plant(folder, "--jobs", "4", "--budget", "60s")
    killed = {defect["after"] for defect in document["defects"] if defect["fate"] == "killed"}
    assert killed >= {"int start = 1;", "os.write(writing, str(2 * sum(items)).encode())"}
    assert document["sources"].keys() == {"toy/__init__.py", "toy/start.cu", "toy/summing.py"}


def test_a_library_that_cannot_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA works only in the process that started it, so each trial imports the libraries itself."""
    folder = write(tmp_path, UNFORKED)
    wheels = folder / "wheels"
    wheels.mkdir()
    (wheels / "device.py").write_text("import os\nOWNER = os.getpid()\n")
    root = Path(harness_package.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{wheels}{os.pathsep}{root}")
    _, document, _ = plant(folder, "--limit", "20")
    assert "return sum(items) + 1" in fates(document)["killed"]
    assert document["sources"].keys() == {"toy/__init__.py", "toy/summing.py"}


def second_claim(folder: Path) -> str:
    """Add a claim about long lists, and return its id."""
    longer = FALSIFIER.replace('[1, 2, trial.parameters["last"]]', "[1] * 1001").replace("- 7", "- 0")
    (folder / "toy" / "longer.py").write_text(longer)
    contract = json.loads((folder / "contracts" / CLAIM / "contract.json").read_text())
    contract |= {"id": "F-TOY-SUM-002", "falsifier": "toy.longer:falsify"}
    contract["mutants"][0] |= {"subject": "toy.longer:Other"}
    (folder / "toy" / "longer.py").open("a").write("\nclass Other:\n    pass\n")
    put(folder / "contracts" / "F-TOY-SUM-002" / "contract.json", json.dumps(contract))
    return "F-TOY-SUM-002"


def test_two_claims_share_what_they_kill(folder: Path) -> None:
    """A defect that one of them kills is dead. Both try only the survivor."""
    code, document, tried = plant(folder, second_claim(folder), "--jobs", "1")
    assert len(tried) == len(document["defects"]) == 9
    assert (code, document["total"]["killed"], document["total"]["survived"]) == (ExitStatus.FAIL, 7, 1)
    assert all(
        defect["attempts"][-1]["fate"] == "killed" for defect in document["defects"] if defect["fate"] == "killed"
    )
    (survivor,) = [defect for defect in document["defects"] if defect["fate"] == "survived"]
    assert {attempt["claim"] for attempt in survivor["attempts"]} == {CLAIM, "F-TOY-SUM-002"}


def test_what_one_claim_calls_equivalent_another_may_kill(folder: Path) -> None:
    """The claim with the entry does not try the defect. A defect under `missed` is tried, and has its reason."""
    other = second_claim(folder)
    about = {"file": "toy/summing.py", "before": "if len(items) > 1000:", "reason": "the claim is about short lists"}
    marks = {"equivalent": [{**about, "after": "if len(items) > 1001:"}]}
    marks["missed"] = [{**about, "after": "if len(items) >= 1000:"}]
    (folder / "contracts" / CLAIM / "equivalent.json").write_text(json.dumps({"id": CLAIM, **marks}))
    _, document, _ = plant(folder, other)
    found = {defect["after"]: defect for defect in document["defects"]}
    killed = found["if len(items) > 1001:"]
    assert (killed["fate"], [attempt["claim"] for attempt in killed["attempts"]]) == ("killed", [other])
    survivor = found["if len(items) >= 1000:"]
    assert (survivor["fate"], survivor["missed"]) == ("survived", about["reason"])


def test_a_claim_that_does_not_pass_is_not_planted(tmp_path: Path) -> None:
    """A claim that does not pass is not planted, because its falsifier would kill everything."""
    code, document, tried = plant(write(tmp_path, SUBJECT.replace("result += item", "result += 2 * item")))
    assert (code, document["claims"][0]["defects"], tried) == (ExitStatus.NOT_MEASURED, 0, [])
    assert "inversions.maximum" in document["claims"][0]["obstacle"]


def test_a_parameter_may_differ(folder: Path) -> None:
    """With another parameter the claim does not pass. The document says which one was changed."""
    _, document, _ = plant(folder, "-P", "last=5")
    assert problems("planting", document) == []
    assert document["overrides"] == {"last": 5}
    assert "inversions.maximum" in document["claims"][0]["obstacle"]
    assert harness(folder, "plant", CLAIM, "-P", "least=5").returncode == ExitStatus.REFUSED

"""The defects of a sample, and the claim that tries a defect next."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.base.schemas import problems
from harness.contract.claim_folder import PLANTING
from harness.contract.project import Project
from harness.machine.host import probe
from harness.running.interruption import Interruption
from harness.running.request import RunRequest
from harness.tools.planting.campaign import Sample, _Campaign
from harness.tools.planting.defects import Defect, Subjects, defects
from harness.tools.planting.equivalent import equivalents
from harness.tools.planting.results import Attempt, DefectFate, Planted
from harness.tools.planting.schedule import Schedule, stratified

FOUND = [
    *defects("a.py", b"def f(x):\n" + b"    x = x + 2\n" * 40),
    *defects("b.py", b"def g(x):\n" + b"    x.step()\n" * 20),
]
FIRST, SECOND = FOUND[:2]
KILLED, SURVIVED = DefectFate.KILLED, DefectFate.SURVIVED


def test_every_beginning_is_a_fair_sample() -> None:
    """Each operator of each file has its share, rounded to whole defects, with any seed."""
    for seed in range(5):
        order = stratified(FOUND, seed)
        assert sorted(defect.id for defect in order) == sorted(defect.id for defect in FOUND)
        whole = Counter((defect.file, defect.operator) for defect in order)
        tenth = Counter((defect.file, defect.operator) for defect in order[: len(order) // 10])
        assert all(abs(tenth[stratum] - count / 10) <= 1.5 for stratum, count in whole.items())
    assert stratified(FOUND, 0) == stratified(reversed(FOUND), 0) != stratified(FOUND, 1)


def test_a_sample_and_its_parts() -> None:
    """A larger sample contains the smaller one. Parts are disjoint. `--again` selects before the sample is drawn."""
    sample = Sample(limit=9).of(FOUND, 0)
    assert Sample(limit=12).of(FOUND, 0)[:9] == sample
    parts = [Sample(limit=9, part=(place, 3)).of(FOUND, 0) for place in (1, 2, 3)]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert {defect.id for part in parts for defect in part} == {defect.id for defect in sample}
    only = {(defect.file, defect.within, defect.before, defect.after) for defect in FOUND if defect.file == "b.py"}
    assert {defect.file for defect in Sample(limit=9, only=only).of(FOUND, 0)} == {"b.py"}


def of(defect: Defect) -> Planted:
    return Planted(defect, "", ("slow", "quick"))


def schedule(*tried: Defect) -> Schedule:
    """Two claims that both reach every defect. One is four times as quick."""
    return Schedule([of(defect) for defect in tried], {"slow": 4.0, "quick": 1.0})


def test_the_first_kill_settles_a_defect() -> None:
    """The quick claim comes first. Two claims try one defect at once only if all defects are being tried."""
    work = schedule(FIRST, SECOND)
    tasks = [work.next(("slow", "quick")) for _ in range(4)]
    assert tasks == [(of(defect), claim) for claim in ("quick", "slow") for defect in (FIRST, SECOND)]
    assert (work.next(("slow", "quick")), work.left) == (None, 2)
    assert work.add(FIRST, Attempt("quick", KILLED, seconds=1.0), "quick")
    assert not work.add(FIRST, Attempt("slow", SURVIVED, seconds=4.0), "slow")
    assert not work.add(SECOND, Attempt("quick", SURVIVED, seconds=1.0), "quick")
    assert work.add(SECOND, Attempt("slow", SURVIVED, seconds=4.0), "slow")
    assert [attempt.fate for attempt in work.attempts(SECOND)] == [SURVIVED, SURVIVED]
    assert work.left == 0


def test_the_claim_that_kills_in_a_file_comes_first_there() -> None:
    """After nine defects that only the slow claim killed, it tries the tenth first."""
    work = schedule(*FOUND[:10])
    for defect in FOUND[:9]:
        work.remember(defect, Attempt("quick", SURVIVED, seconds=1.0))
        work.remember(defect, Attempt("slow", KILLED, seconds=4.0))
    assert work.next(("slow", "quick")) == (of(FOUND[9]), "slow")


def test_at_the_end_of_the_time_no_defect_is_begun() -> None:
    """A defect that has begun is finished."""
    work = schedule(FIRST, SECOND)
    assert work.next(("quick",)) == (of(FIRST), "quick")
    work.add(FIRST, Attempt("quick", SURVIVED, seconds=1.0), "quick")
    assert work.next(("slow", "quick"), only_begun=True) == (of(FIRST), "slow")
    assert work.next(("slow", "quick"), only_begun=True) is None


PROJECT = Project.find(Path(__file__).parent)


def test_every_entry_still_names_a_defect() -> None:
    """If its source line has changed, an entry must be removed or changed."""
    subjects = Subjects(PROJECT.root)
    entries = [(path.parent.name, entry) for path in PROJECT.files() for entry in equivalents(path)]
    gone = [(claim, entry.file, entry.before) for claim, entry in entries if not subjects.is_matched(entry)]
    assert (gone, len(entries) > 0) == ([], True)


def test_recorded_campaigns_have_their_format() -> None:
    """`verify` would ignore a result that it cannot read."""
    for path in (PROJECT.evidence / PLANTING).iterdir():
        assert problems("planting", json.loads(path.read_bytes())) == [], path


def test_a_defect_of_the_harness_ends_the_campaign(project: Project, tmp_path: Path) -> None:
    """The exception reaches the caller, and no other thread tries defects until the end of the budget."""
    began, host, request = time.monotonic(), probe(project.root), RunRequest(jobs=2)
    with ExitStack() as resources:
        campaign = _Campaign(
            project, Subjects(project.root), host, tmp_path, request, began + 60, False, Interruption(), resources
        )

        def fail() -> None:
            raise ArithmeticError("a defect")

        def work() -> None:
            while not campaign._is_over():
                time.sleep(0.01)

        with pytest.raises(ArithmeticError, match="a defect"):
            campaign._together([fail, work])
    assert time.monotonic() - began < 30

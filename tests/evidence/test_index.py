"""The index of records. Its cache never replaces the files."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from harness.base.vocabulary import Outcome, Verdict
from harness.contract.bound import RULE, Bound
from harness.contract.clauses import ClauseResult
from harness.evidence import untrusted
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import find_bundles
from harness.evidence.index import Contents, past_runs, read, whole_runs
from harness.judging.record import Record
from harness.tools.html.claim_page import measurements_of
from tests.contracts import healthy
from tests.evidence.entries import CPU, TARGET, entry
from tests.evidence.factory import reseal, sealed


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A folder for caches."""
    return tmp_path / "cache"


def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The records that are read from now on, by folder."""
    seen: list[Path] = []
    original = untrusted.read

    def counting(root: Path, name: str) -> tuple[bytes, str]:
        if name == "record.json":
            seen.append(root)
        return original(root, name)

    monkeypatch.setattr(untrusted, "read", counting)
    return seen


def database(cache: Path) -> Path:
    """The only cache file."""
    (path,) = cache.glob("index-*.json")
    return path


def test_an_entry_says_what_the_record_says(tmp_path: Path) -> None:
    """Each field has the same name as in the record."""
    bundle = sealed(tmp_path, run="a-fail", measurements=healthy(returned=2), overrides={"steps": 3})
    (entry,) = read(tmp_path / "evidence").entries
    record = Record.from_json(json.loads((bundle / "record.json").read_text()))
    fields = asdict(entry)
    assert (fields.pop("path"), fields.pop("killed")) == (bundle, ("forgets-one", "stops-early"))
    assert (fields.pop("failed"), fields.pop("lived")) == (("nothing-lost",), record.lived)
    assert fields == {name: asdict(record)[name] for name in fields}
    assert (entry.verdict, str(entry.device_class)) == (Verdict.FAIL, "CPU a CPU")


def test_the_second_time_nothing_is_read_again(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is the same, and no record is read."""
    for run in ("a", "b", "c"):
        sealed(tmp_path, run=run)
    first = read(tmp_path / "evidence", cache=cache)
    seen = opened(monkeypatch)
    assert read(tmp_path / "evidence", cache=cache) == first == read(tmp_path / "evidence")
    assert len(seen) == 3  # by the last, which has no cache


def test_what_appears_changes_and_vanishes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call sees each change, and reads only the changed bundle."""
    evidence = tmp_path / "evidence"
    first, second = sealed(tmp_path, run="a"), sealed(tmp_path, run="b")
    read(evidence, cache=cache)
    third = sealed(tmp_path, run="c")
    seen = opened(monkeypatch)
    assert [entry.run for entry in read(evidence, cache=cache).entries] == ["a", "b", "c"]
    assert seen == [third]
    record = second / "record.json"
    before = record.stat()
    record.write_text(record.read_text().replace('"PASS"', '"FAIL"', 1))  # of the same size,
    os.utime(record, ns=(before.st_atime_ns, before.st_mtime_ns))  # and with the same time
    (unbelieved,) = read(evidence, cache=cache).unreadable
    assert (unbelieved.path, "MANIFEST.sha256 seals" in unbelieved.reason) == (second, True)
    reseal(second)
    assert [entry.verdict for entry in read(evidence, cache=cache).entries] == ["PASS", "FAIL", "PASS"]
    shutil.rmtree(first)
    assert [entry.run for entry in read(evidence, cache=cache).entries] == ["b", "c"]
    assert database(cache).read_text().count("DEMO-1/F-DEMO-SORT-001/") == 2
    assert seen == [third, second, second]
    shutil.rmtree(evidence)
    assert read(evidence, cache=cache) == Contents((), ())


def test_only_one_claim(tmp_path: Path, cache: Path) -> None:
    """Bundles of other claims are left out."""
    sealed(tmp_path)
    assert len(read(tmp_path / "evidence", "F-DEMO-SORT-001", cache).entries) == 1
    assert read(tmp_path / "evidence", "F-DEMO-OTHER-001", cache).entries == ()


def test_what_is_no_bundle_yet_or_no_more(tmp_path: Path) -> None:
    """Unfinished folders are skipped.

    A bundle without its record is named. A folder inside a bundle is not a bundle.
    """
    bundle = sealed(tmp_path, run="a")
    shutil.copytree(bundle, bundle.with_name(".unfinished-b~1-2-abcdef01"))
    shutil.copytree(bundle, bundle.with_name("c"))
    (bundle.with_name("c") / "record.json").unlink()
    contents = read(tmp_path / "evidence")
    assert [entry.run for entry in contents.entries] == ["a"]
    assert [(bundle.path.name, bundle.reason) for bundle in contents.unreadable] == [("c", "record.json is missing")]


def _invalid(record: Path) -> None:
    record.write_text(json.dumps({**json.loads(record.read_text()), "verdict": "GREAT"}))


def _link(record: Path) -> None:
    record.rename(record.with_name("elsewhere.json"))
    record.symlink_to("elsewhere.json")


def _pipe(record: Path) -> None:
    record.unlink()
    os.mkfifo(record)


def _folder(record: Path) -> None:
    record.unlink()
    record.mkdir()


SPOILERS: list[tuple[Callable[[Path], object], str]] = [
    (lambda record: record.write_text("{"), "record.json: "),
    (lambda record: record.write_text(""), "record.json: "),
    (lambda record: record.write_text('{"format": 1}'), "record.json: "),
    (lambda record: record.write_bytes(b"\xff\xfe"), "record.json: "),
    (lambda record: record.write_text("[" * 100_000), "record.json: "),
    (_invalid, "record.json: /verdict"),
    (_link, "record.json: "),
    (_pipe, "record.json: "),
    (_folder, "record.json: "),
]


@pytest.mark.parametrize(("spoil", "reason"), SPOILERS, ids=range(len(SPOILERS)))
def test_a_record_that_is_none(tmp_path: Path, cache: Path, spoil: Callable[[Path], object], reason: str) -> None:
    """An invalid record is reported as unreadable, and other bundles stay visible."""
    sealed(tmp_path, run="a")
    spoil(sealed(tmp_path, run="b") / "record.json")
    for _ in range(2):
        contents = read(tmp_path / "evidence", cache=cache)
        assert [entry.run for entry in contents.entries] == ["a"]
        ((path, why),) = ((bundle.path.name, bundle.reason) for bundle in contents.unreadable)
        assert (path, why[: len(reason)]) == ("b", reason)


def test_a_record_that_is_not_the_sealed_one_is_unreadable(tmp_path: Path) -> None:
    """A record that the manifest does not seal is unreadable, whatever its own digest."""
    record = sealed(tmp_path) / "record.json"
    text = record.read_text()
    for spaces in range(1, 7):
        record.write_text(text + " " * spaces)
        contents = read(tmp_path / "evidence")
        assert (contents.entries, len(contents.unreadable)) == ((), 1)
    record.write_text(text)
    assert len(read(tmp_path / "evidence").entries) == 1


def test_a_folder_that_cannot_be_entered_hides_no_other(not_root: Path) -> None:
    """Each folder that cannot be entered is reported, and the others are read."""
    bundle = sealed(not_root, run="a")
    for name in ("b", "c", "d"):
        bundle.with_name(name).mkdir(mode=0)
    contents = read(not_root / "evidence")
    assert [entry.run for entry in contents.entries] == ["a"]
    assert sorted(bundle.path.name for bundle in contents.unreadable) == ["b", "c", "d"]


@pytest.mark.parametrize("at", [0, 70, -2])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call gives the same answer, and the next call has a cache again."""
    sealed(tmp_path, run="a")
    expected = read(tmp_path / "evidence", cache=cache)
    content = bytearray(database(cache).read_bytes())
    content[at] ^= 1
    database(cache).write_bytes(content)
    assert read(tmp_path / "evidence", cache=cache) == expected
    seen = opened(monkeypatch)
    assert read(tmp_path / "evidence", cache=cache) == expected
    assert seen == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """The answer is the same without a cache."""
    sealed(tmp_path, run="a")
    (tmp_path / "file").write_text("")
    assert len(read(tmp_path / "evidence", cache=tmp_path / "file").entries) == 1
    full = Path("/dev/full")
    assert len(read(tmp_path / "evidence", cache=full).entries) == 1


def test_many_at_once(tmp_path: Path, cache: Path) -> None:
    """Each caller gets the whole answer while bundles come and go."""
    for number in range(12):
        sealed(tmp_path, run=f"run-{number:02}")
    results: list[Contents | BaseException] = []

    def work() -> None:
        for _ in range(4):
            try:
                results.append(read(tmp_path / "evidence", cache=cache))
            except BaseException as error:
                results.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [read(tmp_path / "evidence")] * 24


def test_measurements_are_the_numbers_that_clauses_looked_at(tmp_path: Path) -> None:
    """The measurements are the numbers that clauses compare, by name.

    In a list, the item nearest to its bound counts. Values that are not finite are kept, and values that are not
    numbers are left out.
    """
    bundle = Bundle(sealed(tmp_path, run="a", measurements=healthy(largest=math.nan)))
    values = {name: value for name, (value, _) in measurements_of(bundle.record).items()}
    assert math.isnan(values.pop("largest"))
    assert values == {"given": 3, "returned": 3, "smallest": 1.0}


def test_names_that_are_no_utf8(tmp_path: Path, cache: Path) -> None:
    """A folder may have any name."""
    bundle = sealed(tmp_path, run="a")
    strange = os.fsencode(bundle.parent) + b"/run-\xff"
    os.rename(bundle, strange)
    for _ in range(2):
        (entry,) = read(tmp_path / "evidence", cache=cache).entries
        assert os.fsencode(entry.path) == strange


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link to a bundle and a cycle of links are not followed."""
    bundle = sealed(tmp_path, run="a")
    (bundle.parent / "b").symlink_to(bundle)
    (bundle.parent / "circle").symlink_to(tmp_path / "evidence")
    assert [entry.run for entry in read(tmp_path / "evidence").entries] == ["a"]


@pytest.mark.parametrize("at", [1, 7, 20])
def test_interrupted_it_keeps_what_it_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """After Ctrl-C, the next call continues from there and gives the same answer."""
    for number in range(20):
        sealed(tmp_path, run=f"run-{number:02}")

    def interrupting(done: int, total: int) -> None:
        assert total == 20
        if done == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(tmp_path / "evidence", cache=cache, watch=interrupting)
    seen = opened(monkeypatch)
    calls: list[tuple[int, int]] = []
    contents = read(tmp_path / "evidence", cache=cache, watch=lambda done, total: calls.append((done, total)))
    left = 20 - at
    assert len(seen) == left
    assert calls == [(number, left) for number in range(1, left + 1)]
    assert contents == read(tmp_path / "evidence")


def test_a_bundle_at_any_depth_is_found(tmp_path: Path) -> None:
    """The index finds the bundles that `harness verify` finds."""
    bundle = sealed(tmp_path)
    deep = tmp_path / "evidence" / Path(*"x" * 30)
    deep.mkdir(parents=True)
    shutil.copytree(bundle, deep / "run")
    found = [entry.path for entry in read(tmp_path / "evidence").entries]
    assert found == [bundle, deep / "run"] == find_bundles([tmp_path])


def test_only_a_rule_names_what_it_reads() -> None:
    """A rule has the names that it reads. The values of any other clause are one measurement."""
    rule = ClauseResult("rule", Outcome.PASS, {"a": 1.0, "text": "x"}, Bound(RULE, "self.a > 0.0"))
    bounds = {"m.x": None, "m.y": Bound("type", "object")}
    others = [ClauseResult(name, Outcome.PASS, {"b": 2.0}, bound) for name, bound in bounds.items()]
    record = SimpleNamespace(clauses=[rule, *others])
    assert measurements_of(cast(Record, record)) == {"a": (1.0, "")}


def test_runs_that_measured_something_oldest_first() -> None:
    """Runs that measured something are listed, oldest first. Each of the other runs lacks one condition."""
    late, early, brief = entry(9), entry(1, verdict=Verdict.FAIL), entry(5, trial_seconds=0.001)
    others = [
        entry(2, trial_seconds=0.0),
        entry(3, verdict=Verdict.NOT_MEASURED),
        entry(4, overrides={"steps": 4}),
    ]
    assert list(whole_runs([late, *others, early, brief])) == [early, brief, late]


def test_the_newest_run_of_each_kind() -> None:
    """The newest run counts for each claim, profile, class of device and subject. Runs without mutants are left out."""
    found = past_runs(
        [
            entry(2, seconds=2.0),
            entry(1, seconds=1.0),
            entry(3, seconds=3.0, mutants_skipped=True),
            entry(4, seconds=4.0, profile="reduced"),
            entry(5, seconds=5.0, device=CPU),
            entry(6, seconds=6.0, subject="a.b:C"),
            entry(7, seconds=7.0, id="F-DEMO-OTHER-001"),
        ]
    )
    gpu, cpu = str(entry(device=TARGET).device_class), str(entry(device=CPU).device_class)
    sorter = entry().subject
    assert found == {
        ("F-DEMO-SORT-001", "full", gpu, sorter): 2.0,
        ("F-DEMO-SORT-001", "reduced", gpu, sorter): 4.0,
        ("F-DEMO-SORT-001", "full", cpu, sorter): 5.0,
        ("F-DEMO-SORT-001", "full", gpu, "a.b:C"): 6.0,
        ("F-DEMO-OTHER-001", "full", gpu, sorter): 7.0,
    }

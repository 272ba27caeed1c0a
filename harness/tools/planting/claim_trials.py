"""The trials of one claim's falsifier, on the unchanged subject and on the subject with a defect.

The subject runs twice without a defect. The first run fills the cache and records which lines the claim reaches. The
second run uses that cache, and a fork server with the libraries. Lines that only the first run reaches fill the cache.
A defect on such a line is tried with an empty cache, and any other defect with a copy of the full cache, because
filling it may take longer than everything else in the trial.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from harness.base import regular_file, strictjson
from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome, Phase, SearchEnd
from harness.contract.clauses import ClauseResult
from harness.contract.imports import imported_files
from harness.contract.project import Project
from harness.execution.executor import TrialResult
from harness.execution.local_executor import LocalExecutor
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from harness.machine import provenance
from harness.running.plan import Plan
from harness.tools.planting.defects import Defect, Subjects
from harness.tools.planting.equivalent import Equivalent
from harness.tools.planting.kernels import is_kernel
from harness.tools.planting.reach import used_lines
from harness.tools.planting.reached import AROUND, read_reached
from harness.tools.planting.results import Attempt, DefectFate, Reach

__all__ = ["ClaimTrials", "project_copy"]

_LEAST_SECONDS, _TIMES_AS_LONG = 20.0, 4.0
"""The time limit of a trial: the time of the subject without a defect and without a cache, times the factor, plus the
seconds."""
_LONGEST_VALUE = 2000
"""Maximum characters of the value of a clause that fails without a defect."""
_LARGEST_KEPT = 64 << 20
"""Maximum bytes of a file of attempts."""

_ELSEWHERE = frozenset({"cli", "evidence", "lint", "pytest_plugin", "report", "running"})
"""The packages of the harness that neither run in a trial nor judge it, so no result depends on them."""


class ClaimTrials:
    """The trials of one claim.

    Attributes:
        reach: the code that the claim reaches; set by `scout`.
    """

    def __init__(
        self,
        project: Project,
        plan: Plan,
        threads: int,
        marked: Sequence[Equivalent],
        executor: LocalExecutor,
        attempts: Path,
        folder: Path,
    ) -> None:
        """Args:
        threads: how many CPU threads a trial may use.
        marked: the author's entries for this claim.
        attempts: the folder where attempts are stored.
        folder: an empty folder for the files of the trials.
        """
        self.plan, self.marked, self.executor = plan, marked, executor
        self.reach = Reach(plan.contract.id, plan.profile.name, obstacle="the time ended before its subject had run")
        self._project, self._threads, self._attempts = project, threads, attempts
        self._seconds = plan.seconds
        self._folder, self._cache = folder, folder / "cache"
        self._cache.mkdir(parents=True)
        self._fills: frozenset[str] = frozenset()
        self._kept: AttemptCache | None = None

    @property
    def claim(self) -> str:
        """The claim's id."""
        return self.plan.contract.id

    def scout(self, subjects: Subjects) -> None:
        """Run the subject without a defect, and record which defects the claim reaches."""
        healthy, lines, modules = self._healthy("without a cache", subjects)
        if not lines:
            self._record_obstacle(healthy, subjects)
            return
        self._seconds = min(self._seconds, _LEAST_SECONDS + _TIMES_AS_LONG * healthy.seconds)
        self._kept = AttemptCache(self._attempts, self.claim, self._decides(healthy))
        self.executor.warm(modules)
        again, later, _ = self._healthy("with a cache", subjects)
        if not later:  # a library may use CUDA when it is imported, which a fork cannot
            self.executor.renew()
            again, later, _ = self._healthy("on its own", subjects)
        if not later:
            self._record_obstacle(again, subjects)
            return
        reached = [defect for defect in subjects.on(lines) if not self._is_the_falsifiers(defect)]
        self._fills = _filling(reached, later)
        self._reached(tuple(reached), again.seconds, "", subjects)

    def remembered(self, defect: Defect) -> Attempt | None:
        """The attempt of an earlier campaign; None if there was none."""
        return self._kept.found.get(_key(defect)) if self._kept is not None else None

    def attempt(self, defect: Defect, content: bytes) -> Attempt | None:
        """Try a defect in a file of this content; None if the trial was cut short."""
        changed = defect.planted(content)
        # Broken code may spoil a cache for the trials that come after.
        with project_copy(self._project.root, defect.file, changed) as root, self._own_cache(defect) as cache:
            result = self._trial(root, cache)
        if result.observation.ending.kind is EndingKind.INTERRUPTED:
            return None
        attempt = self._judged(result)
        if self._kept is not None:
            self._kept.add(_key(defect), attempt)
        return attempt

    def _judged(self, result: TrialResult) -> Attempt:
        ending, judgment = result.observation.ending, judge(self.plan.contract, result.observation)
        seconds = round(result.seconds, 3)
        if judgment.outcome is Outcome.PASS:
            return Attempt(self.claim, DefectFate.SURVIVED, seconds)
        if judgment.outcome is Outcome.FAIL:
            failed = tuple(clause.id for clause in judgment.clauses if clause.outcome is Outcome.FAIL)
            return Attempt(self.claim, DefectFate.KILLED, seconds, failed)
        unmeasured = ", ".join(clause.id for clause in judgment.clauses if clause.outcome is Outcome.NOT_MEASURED)
        # Until the falsifier begins, a trial only imports.
        begun = ending.phase is not Phase.START or ending.kind is EndingKind.LOST
        fate = DefectFate.NOT_MEASURED if begun else DefectFate.NOT_STARTED
        return Attempt(self.claim, fate, seconds, reason=ending.reason or f"not measured: {unmeasured}")

    def _reached(self, reached: tuple[Defect, ...], seconds: float, obstacle: str, subjects: Subjects) -> None:
        unmatched = tuple(entry for entry in self.marked if not subjects.is_matched(entry))
        self.reach = Reach(self.claim, self.plan.profile.name, reached, round(seconds, 3), obstacle, unmatched)

    def _record_obstacle(self, healthy: TrialResult, subjects: Subjects) -> None:
        """The reach of a claim that does not pass without a defect: its falsifier would kill every defect."""
        ending, judgment = healthy.observation.ending, judge(self.plan.contract, healthy.observation)
        why = ending.reason or "; ".join(
            _clause_text(clause) for clause in judgment.clauses if clause.outcome is not Outcome.PASS
        )
        self._reached((), healthy.seconds, f"without a defect the claim is {judgment.outcome}: {why}", subjects)

    def _healthy(self, name: str, subjects: Subjects) -> tuple[TrialResult, dict[str, frozenset[int]], tuple[str, ...]]:
        """The trial of the subject without a defect, the lines to plant by file, and the libraries that it imported.

        No lines and no libraries if the claim does not pass.
        """
        place = self._folder / f"{name}.json"
        healthy = self._trial(self._project.root, self._cache, place)
        if judge(self.plan.contract, healthy.observation).outcome is not Outcome.PASS:
            return healthy, {}, ()
        try:
            ran, modules = read_reached(place)
        except (OSError, ValueError):  # the subject has changed what the harness wrote: no line is known
            return healthy, {}, ()
        contract, search = self.plan.contract, self._project.search
        module, subject = contract.falsifier.partition(":")[0], contract.subject.partition(":")[0]
        own = _module_files(search, module) - _module_files(search, subject)
        imported = set(map(self._project.name_of, imported_files(contract.subject, search) - own))
        for file in imported & healthy.sources.keys():
            subjects.read(file)
        python = {file: (subjects.read(file), lines) for file, lines in ran.items() if file in imported}
        kernels = {file: subjects.lines(file) for file in healthy.sources if is_kernel(file)}
        return healthy, {**used_lines(python), **kernels}, modules

    def _is_the_falsifiers(self, defect: Defect) -> bool:
        """Whether a defect is in the falsifier: one module may have both, subject and falsifier."""
        module, _, name = self.plan.contract.falsifier.partition(":")
        is_beside = self._project.root / defect.file in _module_files(self._project.search, module)
        return is_beside and defect.within.partition(".")[0] == name

    def _decides(self, healthy: TrialResult) -> JsonObject:
        """Every value on which the results of defects depend."""
        return {
            "contract": self.plan.contract.digest,
            "sources": dict(healthy.sources),
            "harness": provenance.harness_identity(without=_ELSEWHERE),
            "profile": self.plan.profile.name,
            "parameters": dict(self.plan.parameters),
            "device": self.plan.device.name,
            "seed": self.plan.request.seed,
        }

    @contextmanager
    def _own_cache(self, defect: Defect) -> Iterator[Path]:
        """A copy of the cache; an empty one if the defect is in code that fills it."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as name:
            cache = Path(name, "cache")
            if defect.id not in self._fills:
                shutil.copytree(self._cache, cache)
            yield cache

    def _trial(self, root: Path, cache: Path, reached: Path | None = None) -> TrialResult:
        request = replace(
            self.plan.trial(self._threads),
            seconds=self._seconds,
            root=root,
            cache=cache,
            around={} if reached is None else {AROUND: str(reached)},
            search_end=SearchEnd.REFUTED,
        )
        return self.executor.run(request, lambda step, values, memory: None)


def _filling(defects: Sequence[Defect], lines: Mapping[str, frozenset[int]]) -> frozenset[str]:
    """The ids of defects in functions that have a line which runs only to fill the cache."""
    fills = [defect for defect in defects if lines.get(defect.file, frozenset()).isdisjoint(defect.lines)]
    functions = {(defect.file, defect.within) for defect in fills if defect.within}
    ids = {defect.id for defect in fills}
    return frozenset(defect.id for defect in defects if defect.id in ids or (defect.file, defect.within) in functions)


def _key(defect: Defect) -> str:
    """The key of a defect in the state file. The file's name has the digest of the sources, so place and text
    suffice."""
    return f"{defect.id} {defect.edit.start}-{defect.edit.end} {defect.edit.text}"


def _module_files(search: Sequence[Path], name: str) -> frozenset[Path]:
    """The files in which a module can be."""
    places = [folder.joinpath(*name.split(".")) for folder in search]
    return frozenset(path for place in places for path in (place / "__init__.py", place.with_suffix(".py")))


class AttemptCache:
    """The attempts of one claim, by defect, a line of JSON each, so that an interrupted campaign continues.

    The file name is a digest of everything that decides a result: contract, sources, harness, profile, device and seed.
    """

    def __init__(self, folder: Path, claim: str, decides: JsonObject) -> None:
        """Args:
        folder: where the files are stored.
        decides: everything that the results depend on.
        """
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        self._path = folder / f"{claim}-{digest[:16]}.jsonl"
        self._turn = threading.Lock()
        self.found: dict[str, Attempt] = {}
        with suppress(OSError):  # no attempt is stored yet
            for line in regular_file.read(self._path, _LARGEST_KEPT).decode("utf-8", "replace").splitlines():
                with suppress(ValueError, LookupError, TypeError):  # an interruption cut the line short
                    entry = strictjson.loads(line)
                    self.found[entry["defect"]] = Attempt.from_json(entry["attempt"])

    def add(self, defect: str, attempt: Attempt) -> None:
        """Store an attempt."""
        with self._turn:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps({'defect': defect, 'attempt': attempt.to_json()})}\n")


@contextmanager
def project_copy(root: Path, file: str, content: bytes) -> Iterator[Path]:
    """The root of a copy of a project in which one file has this content. All other files are links, so the copy is
    cheap.

    Args:
        file: the path from the root.
    """
    copy = Path(tempfile.mkdtemp(prefix="falsifier-planted-"))
    try:
        source, target = root, copy
        for part in PurePosixPath(file).parts:
            for entry in source.iterdir():
                # Bytecode of the healthy file must not stand in for the changed one.
                if entry.name not in (part, "__pycache__"):
                    (target / entry.name).symlink_to(entry)
            source, target = source / part, target / part
            if source.is_dir():
                target.mkdir()
        target.write_bytes(content)
        yield copy
    finally:
        remove(Beneath(copy.parent, copy.name))  # it removes links, not their targets


def _clause_text(result: ClauseResult) -> str:
    """A failed clause, with the value that decided it."""
    return result.id if result.value is None else f"{result.id}: {result.value}"[:_LONGEST_VALUE]

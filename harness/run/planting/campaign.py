"""Plant defects in the subject of a claim, one at a time, and see which of them its falsifier kills.

The falsifier runs on the contract's subject in a copy of the project that has the defect. A defect is killed if the
judgment is FAIL. The subject runs once without a defect first: that shows which lines the claim reaches, and that the
claim passes.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract
from harness.contract.equivalent import Equivalent, equivalents
from harness.contract.imports import imported_files
from harness.contract.project import Project
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.lease import CPU, LeaseUnavailable, WaitInterrupted, lease
from harness.execution.local_executor import LocalExecutor
from harness.judging.judge import judge
from harness.judging.observation import EndingKind
from harness.machine import provenance
from harness.machine.host import Host
from harness.run.interruption import Interruption
from harness.run.plan import MOST_PARALLEL, Plan, make_plan
from harness.run.planting.defects import Defect, defects
from harness.run.planting.project_copy import project_copy
from harness.run.planting.reach import used_lines
from harness.run.planting.results import DefectFate, Planted, Planting
from harness.run.planting.state import State
from harness.run.request import RunRequest

__all__ = ["Campaign"]

_T = TypeVar("_T")
_LOOK_SECONDS = 0.1
_LEAST_SECONDS, _TIMES_AS_LONG = 10.0, 10.0
"""A trial may take this many seconds more, and times as long, as the subject without a defect."""


@dataclass(frozen=True)
class Campaign:
    """Plants in the subjects of a project's claims, on this machine."""

    project: Project
    host: Host
    cache: Path
    profile: str
    """"reduced", "full" or "auto"."""
    device: str
    jobs: int | None
    """How many trials run side by side; None leaves it to the machine."""
    seed: int
    """Of every trial, and of the order in which the defects are tried."""

    def run(
        self,
        contract: Contract,
        until: float,
        tell: Callable[[Planted, int], None],
        *,
        settled: Collection[str] = (),
        listing: bool = False,
    ) -> Planting:
        """Plant in one claim's subject.

        Args:
            until: the `time.monotonic()` at which the trials end.
            tell: takes each defect that was tried, and how many are left.
            settled: the ids of defects that need no trial: another claim has killed them, or they do not start.
            listing: plant nothing; only list the defects.

        Raises:
            ContractError: the file of equivalent defects is refused.
        """
        marked = equivalents(contract.path)
        profile = "auto" if self.profile not in contract.profiles else self.profile
        request = RunRequest(profile=profile, device=self.device, mutants=False, jobs=self.jobs, seed=self.seed)
        plan = make_plan(contract, self.host, request)
        nothing = Planting(contract.id, plan.profile.name)
        if plan.obstacle:
            return replace(nothing, obstacle=plan.obstacle)
        with Interruption() as interruption, ExitStack() as resources:
            try:
                resources.enter_context(_leased(plan, interruption))
                executor = resources.enter_context(LocalExecutor(self.project, contract, plan.gpu, self.cache))
            except WaitInterrupted:
                return replace(nothing, interrupted=True)
            except LeaseUnavailable as error:
                return replace(nothing, obstacle=str(error))
            folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="falsifier-plant-")))
            return _Trials(self, plan, executor, interruption, until, folder).run(
                nothing, marked, tell, settled, listing
            )


class _Trials:
    """The trials of one claim, under its lease."""

    def __init__(
        self,
        campaign: Campaign,
        plan: Plan,
        executor: LocalExecutor,
        interruption: Interruption,
        until: float,
        folder: Path,
    ) -> None:
        """Args:
        folder: an empty one, for what the trials need.
        """
        self._campaign, self._plan, self._executor = campaign, plan, executor
        self._interruption, self._until = interruption, until
        self._root = campaign.project.root
        cpus = campaign.host.cpu_count
        parallel = min(MOST_PARALLEL, cpus) if campaign.jobs is None else campaign.jobs
        self._parallel = 1 if plan.contract.exclusive else max(1, parallel)
        self._threads = max(1, cpus // self._parallel)
        self._seconds = plan.profile.seconds
        self._contents: dict[str, bytes] = {}
        self._folder, self._cache = folder, folder / "cache"
        """The cache that the subject without a defect filled."""
        self._cache.mkdir()
        self._with_cache: frozenset[str] = frozenset()

    def run(
        self,
        nothing: Planting,
        marked: Sequence[Equivalent],
        tell: Callable[[Planted, int], None],
        settled: Collection[str],
        listing: bool,
    ) -> Planting:
        healthy, reached = self._healthy("without a cache")
        if self._interruption.requested:
            return replace(nothing, interrupted=True)
        if self._is_over():
            return replace(nothing, obstacle="the budget ended while the subject ran without a defect")
        judgment = judge(self._plan.contract, healthy.observation)
        if judgment.outcome is not Outcome.PASS:
            ending = healthy.observation.ending
            why = ending.reason or ", ".join(one.id for one in judgment.clauses if one.outcome is not Outcome.PASS)
            return replace(nothing, obstacle=f"without a defect the claim is {judgment.outcome}: {why}")
        found = self._defects(reached["lines"])
        reasons: dict[str, str] = {}
        used: set[Equivalent] = set()
        for defect in found:
            for entry in marked:
                if _is_marked(defect, entry):
                    reasons[defect.id] = entry.reason
                    used.add(entry)
        planting = replace(
            nothing,
            defects=tuple(found),
            equivalent=reasons,
            unmatched=tuple(entry for entry in marked if entry not in used),
            elsewhere=frozenset(one.id for one in found if one.id in settled and one.id not in reasons),
        )
        if listing:
            return planting
        self._seconds = min(self._seconds, _LEAST_SECONDS + _TIMES_AS_LONG * healthy.seconds)
        state = State(self._campaign.cache / "planting", nothing.claim, self._decides(healthy))
        planted, pending = _remembered(planting.untried, state, self._contents)
        random.Random(self._campaign.seed).shuffle(pending)  # noqa: S311 (an order, no secret)
        if pending:
            self._awaited(lambda: self._executor.warm(reached["modules"]))
            self._with_cache = self._beside_cache(found)
        planted += self._plant(pending, state, tell)
        order = {defect.id: place for place, defect in enumerate(found)}
        planted.sort(key=lambda one: order[one.defect.id])
        return replace(planting, planted=tuple(planted), interrupted=self._interruption.requested)

    def _healthy(self, name: str) -> tuple[TrialResult, dict[str, Any]]:
        """The trial of the subject without a defect, and what it reached: `lines` by file, and `modules`."""
        place = self._folder / f"{name}.json"
        healthy = self._awaited(lambda: self._trial(self._root, self._cache, place))
        passed = judge(self._plan.contract, healthy.observation).outcome is Outcome.PASS
        return healthy, json.loads(place.read_text(encoding="utf-8")) if passed else {"lines": {}, "modules": []}

    def _beside_cache(self, found: Sequence[Defect]) -> frozenset[str]:
        """The ids of the defects that a full cache cannot hide: no line of their functions runs only to fill it.

        A defect in code that fills the cache shows only if the cache is empty. To fill it again for each of the others
        may take longer than the rest of the trial.
        """
        if not any(self._cache.iterdir()):
            return frozenset()
        ran = self._healthy("with a cache")[1]["lines"]
        lines = used_lines({file: (content, ran.get(file, ())) for file, content in self._contents.items()})
        fills = [one for one in found if lines.get(one.file, frozenset()).isdisjoint(one.lines)]
        functions = {(one.file, one.within) for one in fills if one.within}
        ids = {one.id for one in fills}
        return frozenset(one.id for one in found if one.id not in ids and (one.file, one.within) not in functions)

    def _defects(self, reached: Mapping[str, Sequence[int]]) -> list[Defect]:
        """The defects of the files that the subject imports, without the falsifier's own code, on lines that ran."""
        contract, search = self._plan.contract, self._campaign.project.search
        module, _, falsifier = contract.falsifier.partition(":")
        own = _module_files(search, module) - _module_files(search, contract.subject.partition(":")[0])
        for path in sorted(imported_files(contract.subject, search) - own):
            file = path.relative_to(self._root).as_posix()
            if file in reached:
                self._contents[file] = path.read_bytes()
        lines = used_lines({file: (content, reached[file]) for file, content in self._contents.items()})
        found = [one for file, used in lines.items() for one in defects(file, self._contents[file], used)]
        # One module may have both, subject and falsifier.
        beside = {path.relative_to(self._root).as_posix() for path in _module_files(search, module)}
        return [one for one in found if one.file not in beside or one.within.partition(".")[0] != falsifier]

    def _decides(self, healthy: TrialResult) -> dict[str, Any]:
        """What the fates of the defects depend on."""
        return {
            "contract": self._plan.contract.digest,
            "sources": dict(healthy.sources),
            "harness": provenance.harness_identity(),
            "profile": self._plan.profile.name,
            "parameters": dict(self._plan.parameters),
            "device": self._plan.device.name,
            "seed": self._campaign.seed,
        }

    def _plant(self, pending: Sequence[Defect], state: State, tell: Callable[[Planted, int], None]) -> list[Planted]:
        """Try defects until the time is over; what an interruption cut short counts as not tried."""
        planted: list[Planted] = []
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="plant") as pool:
            futures = [pool.submit(self._tried, defect) for defect in pending]
            waiting: set[Future[Planted | None]] = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
                for future in done:
                    one = None if future.cancelled() else future.result()
                    if one is not None:
                        planted.append(one)
                        entry = {"fate": one.fate, "clauses": one.clauses, "reason": one.reason, "seconds": one.seconds}
                        state.add(_key(one.defect), entry)
                        tell(one, len(waiting))
                if self._is_over() and waiting:
                    for future in waiting:
                        future.cancel()
                    self._executor.interrupt()
        return planted

    def _is_over(self) -> bool:
        return self._interruption.requested or time.monotonic() >= self._until

    def _tried(self, defect: Defect) -> Planted | None:
        """What comes of a defect; None if its trial was cut short."""
        if self._is_over():
            return None
        content = self._contents[defect.file]
        patch, changed = defect.patch(content), defect.planted(content)
        try:
            compile(changed, defect.file, "exec")
        except (SyntaxError, ValueError) as error:
            return Planted(defect, patch, DefectFate.NOT_STARTED, reason=str(error))
        # Broken code may spoil a cache for the trials that come after.
        with project_copy(self._root, defect.file, changed) as root, self._own_cache(defect) as cache:
            result = self._trial(root, cache)
        ending = result.observation.ending
        if ending.kind is EndingKind.INTERRUPTED:
            return None
        judgment = judge(self._plan.contract, result.observation)
        if judgment.outcome is Outcome.PASS:
            return Planted(defect, patch, DefectFate.SURVIVED, seconds=result.seconds)
        if judgment.outcome is Outcome.FAIL:
            failed = tuple(one.id for one in judgment.clauses if one.outcome is Outcome.FAIL)
            return Planted(defect, patch, DefectFate.KILLED, failed, seconds=result.seconds)
        unmeasured = ", ".join(one.id for one in judgment.clauses if one.outcome is Outcome.NOT_MEASURED)
        # Until the falsifier begins, a trial only imports.
        begun = ending.phase is not Phase.START or ending.kind is EndingKind.LOST
        fate = DefectFate.NOT_MEASURED if begun else DefectFate.NOT_STARTED
        reason = ending.reason or f"not measured: {unmeasured}"
        return Planted(defect, patch, fate, reason=reason, seconds=result.seconds)

    @contextmanager
    def _own_cache(self, defect: Defect) -> Iterator[Path]:
        """A copy of the cache; an empty one if the defect is in code that fills it."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            if defect.id in self._with_cache:
                shutil.copytree(self._cache, name, dirs_exist_ok=True)
            yield Path(name)

    def _trial(self, root: Path, cache: Path, reached: Path | None = None) -> TrialResult:
        plan = self._plan
        request = TrialRequest(
            contract=plan.contract,
            subject=plan.contract.subject,
            profile=plan.profile.name,
            parameters=plan.parameters,
            device=plan.device,
            seed=self._campaign.seed,
            seconds=self._seconds,
            threads=self._threads,
            root=root,
            cache=cache,
            reached=reached,
        )
        return self._executor.run(request, lambda step, values, memory: None)

    def _awaited(self, work: Callable[[], _T]) -> _T:
        """Do something in a thread, so that a signal and the end of the time can end it."""
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            while not future.done():
                wait([future], timeout=_LOOK_SECONDS)
                if self._is_over():
                    self._executor.interrupt()
            return future.result()


@contextmanager
def _leased(plan: Plan, interruption: Interruption) -> Iterator[None]:
    with lease(
        plan.gpu or CPU,
        mode="exclusive" if plan.contract.exclusive else "shared",
        holder=plan.contract.id,
        wait_seconds=plan.profile.lease_seconds,
        interrupted=lambda: interruption.requested,
    ):
        yield


def _remembered(
    pending: Sequence[Defect], state: State, contents: Mapping[str, bytes]
) -> tuple[list[Planted], list[Defect]]:
    """The defects that were tried before, and the others."""
    planted: list[Planted] = []
    left: list[Defect] = []
    for defect in pending:
        entry = state.get(_key(defect))
        if entry is None:
            left.append(defect)
            continue
        patch = defect.patch(contents[defect.file])
        planted.append(
            Planted(
                defect,
                patch,
                DefectFate(entry["fate"]),
                tuple(entry["clauses"]),
                str(entry["reason"]),
                entry["seconds"],
            )
        )
    return planted, left


def _key(defect: Defect) -> str:
    """Names a defect in the state file: the sources are in the file's name, so place and text are enough."""
    return f"{defect.id} {defect.edit.start}-{defect.edit.end} {defect.edit.text}"


def _is_marked(defect: Defect, entry: Equivalent) -> bool:
    return (
        entry.file == defect.file
        and entry.within in (None, defect.within)
        and entry.before == defect.before
        and entry.after == defect.after
    )


def _module_files(search: Sequence[Path], name: str) -> frozenset[Path]:
    """Where a module may stand."""
    places = [folder.joinpath(*name.split(".")) for folder in search]
    return frozenset(path for place in places for path in (place / "__init__.py", place.with_suffix(".py")))

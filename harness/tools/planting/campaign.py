"""Plant defects in the subjects of claims, one at a time, and record which of them the falsifiers kill.

Every claim first runs its subject without a defect, to record which lines it reaches and to check that it passes. Then
its falsifier runs on copies of the project that have one defect each. A defect is killed if the judgment of one claim
is FAIL. After the first kill, no other claim tries the defect.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.contract import Contract
from harness.contract.patch import Patch
from harness.contract.project import Project
from harness.execution.lease import LeaseUnavailable, WaitInterrupted, lease
from harness.execution.local_executor import LocalExecutor
from harness.machine.host import Host
from harness.machine.process_control import adopting
from harness.running.interruption import Interruption
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest
from harness.running.resource_requests import MOST_PARALLEL
from harness.tools.planting.claim_trials import ClaimTrials
from harness.tools.planting.defects import Defect, Subjects
from harness.tools.planting.equivalent import equivalents
from harness.tools.planting.results import Planted, Planting, Reach
from harness.tools.planting.schedule import Schedule, stratified

__all__ = ["Sample", "plant"]

_LOOK_SECONDS = 0.1
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_BEGINNING = 0.8
"""The share of the time budget in which new defects start. Surviving defects take the longest. Without this margin, the
time limit would cut off survivors more often than killed defects, and bias the score."""


@dataclass(frozen=True)
class Sample:
    """Selects the defects to try; all by default."""

    limit: int | None = None
    part: tuple[int, int] = (1, 1)
    """(2, 4) selects the second of four parts, for four processes that share the work."""
    only: Collection[tuple[str, str, str, str]] | None = None
    """If set, the only defects to try, each as file, function, lines before and lines after."""

    def of(self, defects: Iterable[Defect], seed: int) -> list[Defect]:
        """The sample, in the order in which it is tried."""
        selected = [
            defect
            for defect in defects
            if self.only is None or (defect.file, defect.within, defect.before, defect.after) in self.only
        ]
        place, parts = self.part
        return stratified(selected, seed)[: self.limit][place - 1 :: parts]


def plant(
    project: Project,
    host: Host,
    cache: Path,
    request: RunRequest,
    until: float,
    tell: Callable[[Planted, int], None],
    *,
    sample: Sample = Sample(),
    patches: Mapping[str, Sequence[tuple[str, Patch]]] | None = None,
    crowded: bool = False,
) -> Planting:
    """Plant in the subjects of a request's claims, on this machine.

    Args:
        request: its seed is that of every trial and of the sample. A claim without its profile runs in the other one.
        until: the `time.monotonic()` at which the trials end.
        tell: called with each defect when its fate is known, and with the number of remaining defects.
        patches: the defects to try, by file, each with its kind; None for the operators' defects.
        crowded: whether trials of claims that need exclusive use of the device run concurrently with others.

    Raises:
        ContractError: a file of equivalent defects is refused.
        PatchError: a patch does not fit its file.
        OSError: a file that is to be patched cannot be read.
    """
    subjects = Subjects(project.root, patches)
    with Interruption() as interruption, adopting(), ExitStack() as resources:
        campaign = _Campaign(project, subjects, host, cache, request, until, crowded, interruption, resources)
        reaches = campaign.scout()
        planted, found = campaign.plant(sample, tell)
        beyond = subjects.beyond(frozenset[str]().union(*(reach.ids for reach in reaches)))
        return Planting(
            reaches,
            planted,
            found,
            subjects.digests,
            interruption.requested,
            request.parameters,
            tuple(defect.id for defect in beyond),
        )


@dataclass
class _Campaign:
    """The trials of one campaign."""

    project: Project
    subjects: Subjects
    host: Host
    cache: Path
    request: RunRequest
    until: float
    crowded: bool
    interruption: Interruption
    resources: ExitStack

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._marked = {contract.id: equivalents(contract.path) for contract in self.request.contracts}
        """What the authors say of defects, by claim."""
        self._folder = Path(self.resources.enter_context(tempfile.TemporaryDirectory(prefix="falsifier-plant-")))
        self._trials: dict[str, ClaimTrials] = {}
        jobs, processors = self.request.jobs, self.host.cpu_count
        self._parallel = max(1, min(MOST_PARALLEL, processors) if jobs is None else jobs)
        self._threads = max(1, processors // self._parallel)
        for name in _THREADS:  # for libraries that read them when the fork servers load them
            os.environ.setdefault(name, str(self._threads))

    def scout(self) -> tuple[Reach, ...]:
        """Run every subject without a defect. Returns the reach of each claim."""
        hindered: dict[str, Reach] = {}
        for contract in self.request.contracts:
            plan = self._plan(contract)
            if plan.obstacle:
                hindered[contract.id] = Reach(contract.id, plan.profile.name, obstacle=plan.obstacle)
                continue
            executor = LocalExecutor(self.project, contract, self.cache)
            self.resources.enter_context(executor)
            folders = self.cache / "planting", self._folder / contract.id
            self._trials[contract.id] = ClaimTrials(
                self.project, plan, self._threads, self._marked[contract.id], executor, *folders
            )
        for group in self._groups():
            try:
                with self._leased(group):
                    self._together([lambda trial=trial: trial.scout(self.subjects) for trial in group])  # type: ignore[misc]
            except LeaseUnavailable as error:
                for trial in group:
                    hindered[trial.claim] = Reach(trial.claim, trial.plan.profile.name, obstacle=str(error))
                    del self._trials[trial.claim]
            except WaitInterrupted:
                break
        return tuple(
            hindered.get(contract.id) or self._trials[contract.id].reach for contract in self.request.contracts
        )

    def plant(self, sample: Sample, tell: Callable[[Planted, int], None]) -> tuple[tuple[Planted, ...], int]:
        """Try the sample until the time is over. Returns the results, and the number of all defects."""
        found = {defect.id: defect for trials in self._trials.values() for defect in trials.reach.defects}
        # Equivalent defects count only if a claim kills them, so they come last.
        drawn = map(self._with_claims, sample.of(found.values(), self.request.seed))
        chosen = sorted(drawn, key=lambda planted: bool(planted.equivalent))
        schedule = Schedule(chosen, {claim: trials.reach.seconds for claim, trials in self._trials.items()})
        for planted in chosen:
            for claim in planted.claims:
                if (attempt := self._trials[claim].remembered(planted.defect)) is not None:
                    schedule.remember(planted.defect, attempt)
        no_more = self._began + _BEGINNING * (self.until - self._began)

        def work(claims: Collection[str]) -> None:
            while not self._is_over():
                task = schedule.next(claims, only_begun=time.monotonic() > no_more)
                if task is None:
                    return
                planted, claim = task
                attempt = self._trials[claim].attempt(planted.defect, self.subjects.read(planted.defect.file))
                if schedule.add(planted.defect, attempt, claim):
                    tell(replace(planted, attempts=schedule.attempts(planted.defect)), schedule.left)

        for group in self._groups():
            claims = frozenset(trial.claim for trial in group)
            side_by_side = 1 if self._is_alone(group[0].plan) else self._parallel
            try:
                with self._leased(group):
                    self._together([lambda claims=claims: work(claims)] * side_by_side)  # type: ignore[misc]
            except (LeaseUnavailable, WaitInterrupted):
                continue  # a defect that only these claims reach is not tried
        chosen.sort(key=lambda planted: (planted.defect.file, planted.defect.edit.start, planted.defect.id))
        return tuple(replace(planted, attempts=schedule.attempts(planted.defect)) for planted in chosen), len(found)

    def _with_claims(self, defect: Defect) -> Planted:
        """A defect with the claims that try it, and the authors' entries for it."""
        marks = {
            claim: [entry for entry in entries if defect.is_named_by(entry)] for claim, entries in self._marked.items()
        }
        claims = [
            claim
            for claim, trials in self._trials.items()
            if defect.id in trials.reach.ids and not any(entry.is_equivalent for entry in marks[claim])
        ]
        entries = [entry for marked in marks.values() for entry in marked]
        return Planted(
            defect,
            defect.patch(self.subjects.read(defect.file)),
            tuple(claims),
            equivalent=next((entry.reason for entry in entries if entry.is_equivalent), ""),
            missed=next((entry.reason for entry in entries if not entry.is_equivalent), ""),
        )

    def _plan(self, contract: Contract) -> Plan:
        profile = self.request.profile if self.request.profile in contract.profiles else "auto"
        return make_plan(contract, self.host, replace(self.request, profile=profile))

    def _is_alone(self, plan: Plan) -> bool:
        """Whether the trials of a claim have exclusive use of the device."""
        return plan.profile.exclusive and not self.crowded

    def _groups(self) -> list[list[ClaimTrials]]:
        """Groups of claims that run concurrently: first all that share the device, then each of the others alone."""
        alone = [trial for trial in self._trials.values() if self._is_alone(trial.plan)]
        shared = [trial for trial in self._trials.values() if trial not in alone]
        return [group for group in (shared, *([trial] for trial in alone)) if group]

    @contextmanager
    def _leased(self, group: Sequence[ClaimTrials]) -> Iterator[None]:
        """Lease all devices of a group. All campaigns use the same order, so that they cannot deadlock."""
        devices = {key: device for claim_trials in group for key, device in claim_trials.plan.devices.items()}
        with ExitStack() as leases:
            for _, device in sorted(devices.items()):
                leases.enter_context(
                    lease(
                        device,
                        mode="exclusive" if self._is_alone(group[0].plan) else "shared",
                        holder=", ".join(claim_trials.claim for claim_trials in group)[:200],
                        wait_seconds=min(group[0].plan.profile.lease_seconds, max(0.0, self.until - time.monotonic())),
                        interrupted=lambda: self.interruption.requested,
                    )
                )
            yield

    def _together(self, works: Sequence[Callable[[], None]]) -> None:
        """Run functions concurrently. A signal, an exception or the time limit interrupts the trials."""
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="plant") as pool:
            futures = [pool.submit(work) for work in works]
            while wait(futures, timeout=_LOOK_SECONDS).not_done:
                if any(future.done() and not future.cancelled() and future.exception() for future in futures):
                    self.until = 0.0
                if self._is_over():
                    for future in futures:
                        future.cancel()
                    for trials in self._trials.values():
                        trials.executor.interrupt()
        for future in futures:
            if not future.cancelled():
                future.result()

    def _is_over(self) -> bool:
        return self.interruption.requested or time.monotonic() >= self.until

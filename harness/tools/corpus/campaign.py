"""Runs the applicable claims and the other checkers on each case, in its failing and its mended form."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Final, final

from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.base.vocabulary import Outcome, SearchEnd, Verdict
from harness.contract import Contract
from harness.contract.other_subject import Subject
from harness.contract.project import Project
from harness.evidence.bundle_layout import MANIFEST
from harness.execution.executor import Executor, StepListener, TrialRequest, TrialResult
from harness.execution.fork_server import PYTHON, server_environment
from harness.execution.local_executor import LocalExecutor, LocalExecutors
from harness.execution.messages import Imports
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import probe
from harness.running.events import ClaimFinished
from harness.running.in_process import perform
from harness.running.request import RunRequest
from harness.tools.corpus.record import Case

__all__ = ["FORMS", "Answer", "Campaign", "Judged", "Round", "ask_checker"]

FORMS: Final = ("failing", "mended")
_SECONDS_OF_A_CHECK: Final = 900
_PATIENCE: Final = 20
"""The factor on each contract's time limit, so that a busy machine causes no finding."""


@dataclass(frozen=True)
class Round:
    """One pass over the cases.

    Attributes:
        profile: reduced or full. A claim that has one profile runs in that.
    """

    profile: str
    seed: int


@dataclass(frozen=True)
class Judged:
    """The result of one claim for one form of a case in one round.

    Attributes:
        clauses: those that failed; for NOT_MEASURED, the reason.
        manifest: the SHA-256 of the manifest of its bundle, which has the digests of all its files.
    """

    claim: str
    round: Round
    verdict: Verdict
    clauses: Sequence[str]
    seconds: float
    manifest: str


@dataclass(frozen=True)
class Answer:
    """The result of another checker for one form: `found`, `accepted`, `not in scope` or `not measured`, with its
    reason."""

    case: str
    mended: bool
    answer: str
    reason: str


@final
class _SharedExecutor:
    """A claim's executor for one run. After the run, the code stays imported for the next one."""

    def __init__(self, executor: LocalExecutor, imports: Imports) -> None:
        self._executor, self._imports = executor, imports
        self._left: list[Beneath] = []

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        for artifacts in self._left:
            remove(artifacts)

    def imports(self) -> Imports:
        """The imports of the campaign for the claim."""
        return self._imports

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        """See `Executor`."""
        result = self._executor.run(request, on_step)
        self._left += [] if result.artifacts is None else [result.artifacts]
        return result

    def interrupt(self) -> None:
        """See `Executor`."""
        self._executor.interrupt()


@final
class _SharedExecutors:
    """The executors of a campaign. Each imports the code of its claim once, with that of all cases."""

    def __init__(self, executors: Mapping[str, LocalExecutor], jobs: int) -> None:
        """Import the code of all claims and cases."""
        with ThreadPoolExecutor(jobs) as pool:
            imports = pool.map(LocalExecutor.imports, executors.values())
            self._known = dict(zip(executors, zip(executors.values(), imports, strict=True), strict=True))

    def __call__(self, contract: Contract) -> Executor:
        return _SharedExecutor(*self._known[contract.id])

    def close(self) -> None:
        """Do nothing: the campaign closes the executors."""


@dataclass(frozen=True)
class _Work:
    """Claims that run one after another on a form that these cases share."""

    form: str
    cases: tuple[Case, ...]
    claims: tuple[str, ...]


@final
class Campaign:
    """Judges cases, round by round. Every trial is a process of its own, a fork of a server with the imported code."""

    def __init__(
        self, project: Project, cases: Sequence[Case], evidence: Path, executors: _SharedExecutors, jobs: int
    ) -> None:
        """See `begun`."""
        self._project, self._host, self._evidence = project, probe(project.root), evidence
        self._executors, self._jobs = executors, jobs
        self._contracts = {claim: _with_longer_limits(project.contract(claim)) for claim in _entry_points(cases)}
        self._work = [_Work("failing", (case,), tuple(case.claims)) for case in cases]
        self._work += [_Work("mended", tuple(alike), (claim,)) for claim, alike in _of_equal_forms(cases)]

    @classmethod
    @contextmanager
    def begun(cls, project: Project, cases: Sequence[Case], evidence: Path, jobs: int) -> Iterator[Campaign]:
        """Start the servers.

        Args:
            evidence: the folder for bundles.
            jobs: how many trials run side by side.

        Raises:
            ProjectError, ContractError: a record names an unknown claim. OSError: no process or folder can be
            created for a server.
        """
        further = _entry_points(cases)
        contracts = [project.contract(claim) for claim in further]
        with ExitStack() as stack:
            servers = LocalExecutors(project, contracts, made_cache_folder(), again=True, further=further)
            stack.callback(servers.close)
            executors = {contract.id: stack.enter_context(servers(contract)) for contract in contracts}
            yield cls(project, cases, evidence, _SharedExecutors(executors, jobs), jobs)

    def judge(
        self, rounds: Sequence[Round], tell: Callable[[Case, str, Judged], None]
    ) -> Iterator[tuple[Round, Mapping[str, Mapping[str, Sequence[Judged]]]]]:
        """Run the claims on both forms of each case. Yields each round with its results, by case and form.

        Every claim runs on a mended form; cases with one mended form share its trials. On a mistake, claims run until
        one refutes it. A trial ends once it is refuted. The next round begins before a round has ended, so that no
        processor waits for the longest trial.
        """

        def one(item: tuple[Round, _Work]) -> list[Judged]:
            round_, work = item
            verdicts: list[Judged] = []
            for claim in work.claims:
                verdicts.append(self._judged(work, claim, round_))
                for case in work.cases:
                    tell(case, work.form, verdicts[-1])
                if work.form == "failing" and verdicts[-1].verdict is Verdict.FAIL:
                    break
            return verdicts

        with _cancelling(ThreadPoolExecutor(self._jobs)) as pool:
            outcomes = pool.map(one, product(rounds, self._work))
            for round_ in rounds:
                verdicts: dict[str, dict[str, list[Judged]]] = {}
                for work, judged in zip(self._work, outcomes, strict=False):
                    for case in work.cases:
                        verdicts.setdefault(case.id, {}).setdefault(work.form, []).extend(judged)
                yield round_, verdicts

    def _judged(self, work: _Work, claim: str, round_: Round) -> Judged:
        contract, case, is_mended = self._contracts[claim], work.cases[0], work.form == "mended"
        is_written = case.surface in ("function", "suite")
        switch = {} if case.mended else {"mended": is_mended}
        request = RunRequest(
            contracts=[contract],
            profile=round_.profile if round_.profile in contract.profiles else "auto",
            device="cpu" if round_.profile == "reduced" else "auto",
            subject=None if is_written else Subject.at((is_mended and case.mended) or case.subject),
            parameters={**case.claims[claim], **switch, **({"case": case.subject} if is_written else {})},
            mutants=False,
            search_end=SearchEnd.REFUTED,
            jobs=self._jobs,  # each trial has its share of the processors' threads
            seed=round_.seed,
            evidence=self._evidence,
        )
        _, (finished,) = perform(self._project, request, host=self._host, executors=lambda: self._executors)
        return _read(claim, round_, finished)


def _of_equal_forms(cases: Sequence[Case]) -> Iterator[tuple[str, list[Case]]]:
    """Each claim, with the cases that share a mended form, for which its results are equal."""
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        for claim, values in case.claims.items():
            groups.setdefault((claim, case.mended or case.id, strictjson.dumps(values)), []).append(case)
    return ((claim, alike) for (claim, _, _), alike in groups.items())


def _entry_points(cases: Sequence[Case]) -> dict[str, list[str]]:
    """By claim: the subjects of its cases, and the entry points among its parameters."""
    entry_points: dict[str, list[str]] = {}
    for case in cases:
        for claim, values in case.claims.items():
            named = [values[name] for name in ("against", "example") if name in values]
            entry_points.setdefault(claim, []).extend([case.subject, *filter(None, [case.mended]), *named])
    return entry_points


@contextmanager
def _cancelling(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """The pool. An exception in the block cancels tasks that have not started."""
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _with_longer_limits(contract: Contract) -> Contract:
    """The contract with longer limits, unless a limit is part of the claim."""
    profiles = {
        name: profile if profile.limit_is_claimed else replace(profile, seconds=profile.seconds * _PATIENCE)
        for name, profile in contract.profiles.items()
    }
    return replace(contract, profiles=profiles)


def _read(claim: str, round_: Round, finished: ClaimFinished) -> Judged:
    record = finished.record
    failed = tuple(clause.id for clause in record.clauses if clause.outcome is Outcome.FAIL)
    reason = () if failed or record.verdict is Verdict.PASS else (str(record.reason),)
    manifest = "" if finished.bundle is None else sha256((finished.bundle / MANIFEST).read_bytes()).hexdigest()
    return Judged(claim, round_, record.verdict, failed or reason, round(record.trial_seconds, 1), manifest)


def ask_checker(project: Project, checker: str, cases: Sequence[Case], seed: int) -> Iterator[Answer]:
    """Run a checker on both forms of each case, each in a separate process.

    Args:
        checker: the entry point of a function of a `harness.tools.corpus.checker.Form`.
    """
    request = {"checker": checker, "seed": seed, "root": str(project.root), "seconds": _SECONDS_OF_A_CHECK}
    forms = [
        {"case": case.id, "kind": case.kind, "surface": case.surface, "mended": form == "mended",
         "subject": (form == "mended" and case.mended) or case.subject,
         "claims": {name: {**project.contract(name).profiles[_smallest(project, name)].parameters, **values}
                    for name, values in case.claims.items()}}
        for case in cases for form in FORMS
    ]  # fmt: skip
    command = [*PYTHON, "harness.tools.corpus.checker", *map(str, project.search)]
    done = subprocess.run(
        command,
        input=json.dumps({**request, "forms": forms}),
        env={**server_environment(project.root), "OMP_NUM_THREADS": "1"},  # threads that wait for others are slow
        cwd=project.root,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        stderr=sys.stderr,
    )
    for line in done.stdout.splitlines():
        yield Answer(**json.loads(line))


def _smallest(project: Project, claim: str) -> str:
    profiles = project.contract(claim).profiles
    return "reduced" if "reduced" in profiles else "full"

"""Runs the claims that apply on each case, failing and mended, and asks the other checkers about both forms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final, final

from harness.base.vocabulary import Outcome, Verdict
from harness.contract import Contract
from harness.contract.other_subject import Subject
from harness.contract.project import Project
from harness.evidence.bundle_layout import MANIFEST
from harness.execution.executor import Executor
from harness.execution.fork_server import PYTHON, server_environment
from harness.execution.local_executor import LocalExecutors
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import Host, probe
from harness.running.events import ClaimFinished
from harness.running.in_process import perform
from harness.running.request import RunRequest
from harness.tools.corpus.record import Case

__all__ = ["FORMS", "Answer", "Campaign", "Judged", "Round", "ask_checker"]

FORMS: Final = ("failing", "mended")
_SECONDS_OF_A_CHECK: Final = 900
_PATIENCE: Final = 20
"""How many times longer than its contract says a trial may take: a busy machine is no finding."""


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
    """What one claim says of one form of a case in one round.

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
    """What another checker says of one form: `found`, `accepted`, `not in scope` or `not measured`, with its reason."""

    case: str
    mended: bool
    answer: str
    reason: str


@final
class _Kept:
    """Executors that outlive a run, so that libraries are imported once for all runs."""

    def __init__(self, executors: LocalExecutors) -> None:
        self._executors = executors

    def __call__(self, contract: Contract) -> Executor:
        return self._executors(contract)

    def close(self) -> None:
        """Leave them to the campaign."""


@final
class Campaign:
    """Judges cases, round by round. Every trial is a process of its own, a fork of a server with the libraries."""

    def __init__(self, project: Project, cases: Sequence[Case], host: Host, evidence: Path, executors: _Kept) -> None:
        """See `begun`."""
        self._project, self._host, self._evidence, self._executors = project, host, evidence, executors
        self._work = [(one, form, claim) for one in cases for form in FORMS for claim in one.claims]
        self._contracts = {claim: _patient(project.contract(claim)) for _, _, claim in self._work}

    @classmethod
    @contextmanager
    def begun(cls, project: Project, cases: Sequence[Case], evidence: Path) -> Iterator[Campaign]:
        """Start the servers.

        Args:
            evidence: the folder for bundles.

        Raises:
            ProjectError, ContractError: a record names a claim that there is not.
        """
        contracts = [project.contract(claim) for claim in {claim: None for one in cases for claim in one.claims}]
        executors = LocalExecutors(project, contracts, made_cache_folder(), again=True)
        try:
            yield cls(project, cases, probe(project.root), evidence, _Kept(executors))
        finally:
            executors.close()

    def judge(
        self, round_: Round, jobs: int, tell: Callable[[Case, str, Judged], None]
    ) -> Mapping[str, Mapping[str, Sequence[Judged]]]:
        """Run each claim on both forms of each case; by case and form."""

        def one(item: tuple[Case, str, str]) -> tuple[Case, str, Judged]:
            judged = self._judged(*item, round_, jobs)
            tell(item[0], item[1], judged)
            return item[0], item[1], judged

        found: dict[str, dict[str, list[Judged]]] = {case.id: {form: [] for form in FORMS} for case, _, _ in self._work}
        with ThreadPoolExecutor(jobs) as pool:
            for case, form, judged in pool.map(one, self._work):
                found[case.id][form].append(judged)
        return found

    def _judged(self, case: Case, form: str, claim: str, round_: Round, jobs: int) -> Judged:
        contract = self._contracts[claim]
        is_written = case.surface in ("function", "suite")
        request = RunRequest(
            contracts=[contract],
            profile=round_.profile if round_.profile in contract.profiles else "auto",
            device="cpu" if round_.profile == "reduced" else "auto",
            subject=None if is_written else Subject.at(case.subject),
            parameters={
                **case.claims[claim], "mended": form == "mended", **({"case": case.subject} if is_written else {})
            },
            mutants=False,
            jobs=jobs,  # each trial has its share of the processors' threads
            seed=round_.seed,
            evidence=self._evidence,
        )  # fmt: skip
        _, (finished,) = perform(self._project, request, host=self._host, executors=lambda: self._executors)
        return _read(claim, round_, finished)


def _patient(contract: Contract) -> Contract:
    """The contract with longer limits, unless a limit is part of the claim."""
    profiles = {
        name: one if one.limit_is_claimed else replace(one, seconds=one.seconds * _PATIENCE)
        for name, one in contract.profiles.items()
    }
    return replace(contract, profiles=profiles)


def _read(claim: str, round_: Round, finished: ClaimFinished) -> Judged:
    record = finished.record
    failed = tuple(one.id for one in record.clauses if one.outcome is Outcome.FAIL)
    reason = () if failed or record.verdict is Verdict.PASS else (str(record.reason),)
    manifest = "" if finished.bundle is None else sha256((finished.bundle / MANIFEST).read_bytes()).hexdigest()
    return Judged(claim, round_, record.verdict, failed or reason, round(record.trial_seconds, 1), manifest)


def ask_checker(project: Project, checker: str, cases: Sequence[Case], seed: int) -> Iterator[Answer]:
    """Ask a checker about both forms of each case, each in a process of its own.

    Args:
        checker: the entry point of a function of a `harness.tools.corpus.checker.Form`.
    """
    asked = {"checker": checker, "seed": seed, "root": str(project.root), "seconds": _SECONDS_OF_A_CHECK}
    forms = [
        {"case": one.id, "kind": one.kind, "surface": one.surface, "subject": one.subject, "mended": form == "mended",
         "claims": {name: {**project.contract(name).profiles[_smallest(project, name)].parameters, **values}
                    for name, values in one.claims.items()}}
        for one in cases for form in FORMS
    ]  # fmt: skip
    command = [*PYTHON, "harness.tools.corpus.checker", *map(str, project.search)]
    done = subprocess.run(
        command,
        input=json.dumps({**asked, "forms": forms}),
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

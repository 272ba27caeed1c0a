"""Runs the claims that apply on each case, failing and mended, and asks the other checkers about both forms."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from harness.base.vocabulary import Outcome, Verdict
from harness.contract.project import Project
from harness.evidence.bundle_layout import MANIFEST
from harness.execution.fork_server import PYTHON, server_environment
from harness.machine.host import Host
from harness.running.events import ClaimFinished
from harness.running.in_process import perform
from harness.running.request import RunRequest
from harness.tools.corpus.record import Case

__all__ = ["FORMS", "Answer", "Judged", "ask_checker", "judge_cases"]

FORMS: Final = ("failing", "mended")
_SECONDS_OF_A_CHECK: Final = 900


@dataclass(frozen=True)
class Judged:
    """What one claim says of one form of a case.

    Attributes:
        clauses: those that failed; for NOT_MEASURED, the reason.
        bundle: its name.
        manifest: the SHA-256 of its manifest, which has the digests of all its files.
    """

    claim: str
    verdict: Verdict
    clauses: Sequence[str]
    seconds: float
    bundle: str
    manifest: str


@dataclass(frozen=True)
class Answer:
    """What another checker says of one form: `found`, `accepted`, `not in scope` or `not measured`, with its reason."""

    case: str
    mended: bool
    answer: str
    reason: str


def judge_cases(
    project: Project,
    cases: Sequence[Case],
    host: Host,
    *,
    evidence: Path,
    profile: str,
    seed: int,
    jobs: int,
    tell: Callable[[Case, str, Judged], None],
) -> Mapping[str, Mapping[str, Sequence[Judged]]]:
    """Run each claim on both forms of each case; by case and form. Bundles go to `evidence`.

    Raises:
        ProjectError, ContractError: a record names a claim that there is not.
    """
    work = [(one, form, claim) for one in cases for form in FORMS for claim in one.claims]
    contracts = {claim: project.contract(claim) for _, _, claim in work}

    def judge(item: tuple[Case, str, str]) -> tuple[Case, str, Judged]:
        case, form, claim = item
        request = RunRequest(
            contracts=[contracts[claim]],
            profile=profile if profile in contracts[claim].profiles else "auto",
            device="cpu" if profile == "reduced" else "auto",
            subject=None if case.surface in ("function", "suite") else case.subject,
            parameters=_parameters(case, claim, form),
            mutants=False,
            jobs=1,
            seed=seed,
            evidence=evidence,
        )
        _, (finished,) = perform(project, request, host=host)
        judged = _judged(claim, finished)
        tell(case, form, judged)
        return case, form, judged

    found: dict[str, dict[str, list[Judged]]] = {one.id: {form: [] for form in FORMS} for one in cases}
    with ThreadPoolExecutor(jobs) as pool:
        for case, form, judged in pool.map(judge, work):
            found[case.id][form].append(judged)
    return found


def _parameters(case: Case, claim: str, form: str) -> dict[str, object]:
    switch = {"mended": form == "mended"}
    if case.surface in ("function", "suite"):
        return {**case.claims[claim], **switch, "case": case.subject}
    return {**case.claims[claim], **switch}


def _judged(claim: str, finished: ClaimFinished) -> Judged:
    record = finished.record
    failed = [one.id for one in record.clauses if one.outcome is Outcome.FAIL]
    reason = [] if failed or record.verdict is Verdict.PASS else [str(record.reason)]
    bundle = finished.bundle
    digest = "" if bundle is None else sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    return Judged(
        claim, record.verdict, failed or reason, round(record.trial_seconds, 1), bundle.name if bundle else "", digest
    )


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
        env=server_environment(project.root),
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

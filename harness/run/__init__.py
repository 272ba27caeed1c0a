"""A run of claims: planning, trials, judging, and the events that report them.

The package can be called: `harness.run("F-DISTILL-SMOKE-001")` is `harness.run.run("F-DISTILL-SMOKE-001")`. Python sets
the attribute `run` of `harness` to this package as soon as one of its modules is imported, so a function of that name
beside it would be lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

    from harness.run.events import ClaimFinished, Handler

__all__ = ["run"]


def run(
    ids: str | Iterable[str],
    *,
    profile: str = "auto",
    device: str = "auto",
    mutants: bool = True,
    seed: int = 0,
    jobs: int | None = None,
    evidence: str | Path | None = None,
    watch: Handler | None = None,
) -> tuple[ClaimFinished, ...]:
    """Run claims of the project of the current folder, as `harness run` does, and seal a bundle for each.

        (done,) = harness.run("F-DISTILL-SMOKE-001", profile="reduced")
        done.record.verdict             # Verdict.PASS
        harness.steps(done.bundle)      # the step series, as a DataFrame

    Nothing is printed. Ctrl-C ends the run: what was measured is sealed, and KeyboardInterrupt follows.

    Args:
        ids: the id of a claim, or several; globs such as "F-APR-*" too.
        profile: "full", "reduced", or "auto": full if this machine meets its requirements, else reduced.
        device: "cpu", "cuda:N" or "auto".
        mutants: False skips the mutants. A PASS is then unproven (`record.proven` is False).
        seed: the seed of every trial, 0 or more.
        jobs: how many trials run side by side; by default, the plan decides. Trials that measure time run alone.
        evidence: the folder for bundles; by default, the project's.
        watch: called with every event (`harness.run.events`), one at a time, in a thread of its own.

    Returns:
        One `ClaimFinished` for each claim, in the order of the ids: `record` has the verdict, its reason, every clause
        and mutant, and times in seconds; `bundle` is the folder of the evidence, or None if it could not be written. A
        verdict that is not PASS raises nothing.

    Raises:
        ProjectError: the current folder belongs to no project, or the project has no such claim.
        ContractError: a contract is refused. Nothing has run.
        ValueError: an argument is wrong, or there is no id. Nothing has run. The two above are ValueErrors, too.
        OSError: the folder for bundles cannot be written. Nothing has run.
        KeyboardInterrupt: the run was interrupted.
    """
    from harness.contract.project import Project
    from harness.run.in_process import perform
    from harness.run.request import RunRequest

    project = Project.find()
    chosen = project.matching([ids] if isinstance(ids, str) else ids)
    if not chosen:
        raise ValueError("name at least one claim")
    request = RunRequest(
        contracts=[project.contract(name) for name in chosen],
        profile=profile,
        device=device,
        mutants=mutants,
        seed=seed,
        jobs=jobs,
        evidence=None if evidence is None else Path(evidence),
    )
    finished, claims = perform(project, request, () if watch is None else (watch,))
    if finished.interrupted:
        raise KeyboardInterrupt
    return claims


class _Callable(ModuleType):
    """A package that is also a function."""

    def __call__(self, *arguments: Any, **options: Any) -> tuple[ClaimFinished, ...]:
        return run(*arguments, **options)

    __call__.__doc__ = run.__doc__

    @property
    def __signature__(self) -> Signature:
        """What `inspect.signature(harness.run)` returns."""
        import inspect

        return inspect.signature(run)


sys.modules[__name__].__class__ = _Callable

"""F-CORPUS-NOTICE-001: the tests of a suite notice changes of the code under test."""

from __future__ import annotations

from harness import Trial
from harness.tools.suite.session import Suite
from harness.tools.suite.survivors import try_mutants

__all__ = ["falsify"]


def falsify(trial: Trial[Suite]) -> None:
    """Change the code in one place at a time, and count the changes that no test notices."""
    given, suite = trial.parameters, trial.subject
    if given["fault"] is not None:
        suite = suite.weakened({"kind": given["fault"], "function": ""})
    score = try_mutants(
        suite,
        given["mutate"],
        budget=given["budget_seconds"],
        most=given["most_mutants"],
        seed=trial.seed,
        workers=1,
        workspace=trial.workspace / "changes",
    )
    for one in score.survivors():
        trial.log(f"survives: {one.line()}")
    trial.measure(**{name: value for name, value in score.measurements().items() if name != "survivors"})
    trial.resolve(device="cpu")

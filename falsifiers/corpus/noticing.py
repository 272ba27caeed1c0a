"""F-CORPUS-NOTICE-001: the tests of a suite notice wrong results of the code under test."""

from __future__ import annotations

from harness import Trial
from harness.tools.suite.session import Suite
from harness.tools.suite.unnoticed import try_results

__all__ = ["falsify"]


def falsify(trial: Trial[Suite]) -> None:
    """Replace one result of the code at a time, and list the replacements that no test notices."""
    given, suite = trial.parameters, trial.subject
    if given["fault"] is not None:
        suite = suite.weakened({"kind": given["fault"], "function": ""})
    unnoticed, tried = try_results(suite, given["mutate"], workspace=trial.workspace / "changes")
    trial.measure(replacements=tried, unnoticed_results=unnoticed)
    trial.resolve(device="cpu")

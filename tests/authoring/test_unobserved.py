"""Values that a subject does not show, in measurements and in what is computed from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import (
    NotObserved,
    Setting,
    Trial,
    Unobserved,
    first_observed,
    for_external,
    not_observable,
    propagates,
    provided,
)
from harness.authoring.external_subject import ExternalSubject
from harness.authoring.faults import SubjectFault
from harness.authoring.reports import Entered, Measured, Resolved, TrialReport, Unseen
from harness.base.vocabulary import Phase
from harness.execution.worker_trial import WorkerTrial

HIDDEN: Any = Unobserved("it is in another process")


class InProcess:
    """A subject in this process."""

    def __init__(self, setting: Setting) -> None:
        """Do nothing."""


class Outside(InProcess, ExternalSubject):
    """A subject in another process."""

    def ran(self) -> dict[str, Any]:
        return {"device": "cuda", "steps": 7}

    @propagates
    def weights(self) -> list[float]:
        raise NotObserved("it is in another process")


def run(folder: Path, falsify: Callable[[Trial[Any]], None], subject: type = InProcess) -> list[TrialReport]:
    """Return the messages of the trial."""
    said: list[TrialReport] = []
    trial = WorkerTrial(Setting({}, "cpu", 0, folder, folder), folder, frozenset({"one", "two"}), said.append)
    trial.run(falsify, subject)
    return said


@pytest.mark.parametrize("value", [HIDDEN, [1, HIDDEN], {"a": HIDDEN}, HIDDEN.loss, HIDDEN[0] - 1, 1 - HIDDEN.f(2)])
def test_a_hidden_measurement_is_unseen_and_the_others_are_made(value: Any, tmp_path: Path) -> None:
    """The reason is kept by name."""
    said: list[TrialReport] = []
    trial = WorkerTrial(Setting({}, "cpu", 0, tmp_path, tmp_path), tmp_path, frozenset({"one", "two"}), said.append)
    trial.run(lambda trial: trial.measure(one=value, two=2), InProcess)
    assert Measured({"two": 2}) in said
    assert Unseen({"one": "it is in another process"}) in said


@pytest.mark.parametrize(
    "use",
    [bool, list, len, int, float, range, lambda hidden: hidden == 1 or 2, lambda hidden: 1 in [hidden]],
    ids=["bool", "list", "len", "int", "float", "range", "==", "in"],
)
def test_nothing_is_decided_by_a_hidden_value(use: Callable[[Any], Any]) -> None:
    """A hidden value in a condition or a loop raises; it is not taken for false or empty."""
    with pytest.raises(NotObserved):
        use(HIDDEN)


def test_what_looks_at_a_hidden_value_is_hidden() -> None:
    """A function with `@propagates` returns a hidden value if an argument is hidden or hides something.

    Other exceptions are unchanged.
    """
    assert isinstance(propagates(len)(HIDDEN), Unobserved)
    assert isinstance(propagates(lambda: [value for value in HIDDEN])(), Unobserved)  # noqa: C416
    assert propagates(len)([1]) == 1
    with pytest.raises(ZeroDivisionError):
        propagates(lambda: 1 / 0)()


def test_a_value_that_depends_on_a_hidden_one() -> None:
    """`first_observed` returns the first value that is shown."""
    assert isinstance(provided(HIDDEN, 3), Unobserved)
    assert provided([], 3) == 3
    assert first_observed(HIDDEN, {}, {"a": 1}) == {}
    assert first_observed(HIDDEN, HIDDEN) is HIDDEN


def test_a_tensor_and_a_hidden_value() -> None:
    """The difference is hidden, whichever side the hidden value is on."""
    torch = pytest.importorskip("torch")
    assert isinstance(torch.ones(2) - HIDDEN, Unobserved)
    assert isinstance((HIDDEN - torch.ones(2)).abs().max(), Unobserved)


def test_what_ran_elsewhere_is_what_the_subject_says(tmp_path: Path) -> None:
    """The resolved values come from the subject. What the falsifier read in this process does not count."""
    read_back = {"device": "cpu", "steps": 3}
    assert Resolved(read_back) in run(tmp_path, lambda trial: trial.resolve(**read_back))
    assert Resolved({"device": "cuda", "steps": 7}) in run(tmp_path, lambda trial: trial.resolve(**read_back), Outside)


def test_a_falsifier_may_leave_a_subject_elsewhere_to_another(tmp_path: Path) -> None:
    """The decorator chooses the function by the kind of subject."""

    @for_external(lambda trial: trial.measure(one=2))
    def falsify(trial: Trial[Any]) -> None:
        trial.measure(one=1)

    assert Measured({"one": 1}) in run(tmp_path, falsify)
    assert Measured({"one": 2}) in run(tmp_path, falsify, Outside)
    with pytest.raises(NotObserved):
        run(tmp_path, for_external(not_observable("it is in another process"))(falsify), Outside)


def test_a_denied_look_leaves_the_falsifiers_code_running(tmp_path: Path) -> None:
    """A hang after the denied look does not count against the subject."""

    @propagates
    def weights(trial: Trial[Any]) -> Any:
        with trial.subject_fault():
            raise NotObserved("it is in another process")

    def falsify(trial: Trial[Any]) -> None:
        weights(trial)

    said = run(tmp_path, falsify)
    assert said[-1] == Entered(Phase.FALSIFIER)


def test_a_fault_of_the_subject_that_the_falsifier_catches_counts(tmp_path: Path) -> None:
    """The fault still ends the trial."""

    def falsify(trial: Trial[Any]) -> None:
        try:
            with trial.subject_fault():
                raise ValueError
        except SubjectFault:
            pass

    with pytest.raises(SubjectFault):
        run(tmp_path, falsify)

"""The blame if a subject refuses a request."""

from __future__ import annotations

from typing import NoReturn

import pytest

from falsifiers.distill.running.shown import not_refused
from harness import NotMeasured, NotObserved


def _refuse(kind: type[Exception], text: str) -> NoReturn:
    raise kind(text)


def test_what_the_falsifier_can_do_a_subject_must_not_refuse() -> None:
    assert not_refused(lambda: 3, alike=lambda: _refuse(AssertionError, "not needed")) == 3
    with pytest.raises(RuntimeError, match="no room"):
        not_refused(lambda: _refuse(NotMeasured, "no room"), alike=lambda: None)


def test_a_machine_that_refuses_both_is_no_fault() -> None:
    """If the machine refuses subject and falsifier alike, the subject is not blamed.

    A hidden value is no fault either.
    """
    with pytest.raises(NotMeasured, match="full disk"):
        not_refused(lambda: _refuse(NotMeasured, "no room"), alike=lambda: _refuse(NotMeasured, "full disk"))
    with pytest.raises(NotObserved):
        not_refused(lambda: _refuse(NotObserved, "no batch"), alike=lambda: None)

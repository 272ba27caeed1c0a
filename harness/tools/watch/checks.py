"""All checks of a watch, and what they measure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from harness.tools.watch.checkpoint_checks import CHECKPOINT_CHECKS
from harness.tools.watch.course import Check, Course
from harness.tools.watch.facts import Fact
from harness.tools.watch.given import Given
from harness.tools.watch.machine_checks import MACHINE_CHECKS
from harness.tools.watch.output_checks import OUTPUT_CHECKS
from harness.tools.watch.process_checks import PROCESS_CHECKS

__all__ = ["CHECKS", "course_of", "measured", "unseen"]

CHECKS: Final[tuple[type[Check], ...]] = (*OUTPUT_CHECKS, *CHECKPOINT_CHECKS, *MACHINE_CHECKS, *PROCESS_CHECKS)


def course_of(facts: Iterable[Fact], given: Given) -> Course:
    """Return the course of a job after these facts."""
    course = Course(given, CHECKS)
    for fact in facts:
        course.hear(fact)
    return course


def measured(course: Course) -> dict[str, Any]:
    """Return what the checks measured: for each that was judged, its refutations."""
    found: dict[str, Any] = {
        check.name: [one.text for one in check.found] for check in course.checks if check.judged or check.found
    }
    return {"steps_seen": course.step, **found}


def unseen(course: Course) -> dict[str, str]:
    """Return why the other checks were not judged: what they need."""
    return {
        check.name: f"the job has not shown {check.needs}"
        for check in course.checks
        if not (check.judged or check.found)
    }

"""The search behind `Trial.search`: hypothesis draws cases, the contract judges them, the simplest refutation is kept.

The search makes two passes:

1. It tries the requested number of cases, steered towards the thresholds. It ends early only if the subject raises, if
   the search stops at the first refutation and there is one, or if a mutant has violated the clauses that the contract
   names.
2. If a case refuted the claim, it draws the same cases again up to that one, and shrinks it if requested.

Each case runs once. If hypothesis draws it again, its stored result is used. So the seed and the subject determine the
search, also if the subject is not deterministic. The simplest refutation runs once more at the end, to see
whether it repeats.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.strategies import SearchStrategy

from harness.authoring.faults import SubjectFault
from harness.authoring.setting import Setting
from harness.authoring.toolkit_log import HYPOTHESIS
from harness.authoring.trial import Case, CaseResult
from harness.base import strictjson
from harness.base.device import Device
from harness.base.redaction import Redactor
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome, SearchEnd
from harness.contract import parse
from harness.contract.clauses import ITEM
from harness.contract.model import COMPLETES
from harness.judging.counterexample import COUNTEREXAMPLE, Counterexample, judge_case, nearness

__all__ = ["CaseSearch"]

_MOST_ROUNDS = 5
"""The most rounds of drawing from a strategy that gives too few different cases in one round."""
_FEWEST_SHRINKS = 50
_LEAST = 1e-30


class _Stop(BaseException):
    """Ends a round, with an error if there is one. A `BaseException`, because hypothesis handles an `Exception`."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(error)
        self.error = error


class _Wanted(Exception):
    """Marks a case for hypothesis to shrink."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(str(result.case))
        self.result = result


class CaseSearch:
    """One search of one trial."""

    def __init__(
        self,
        claim: JsonObject,
        setting: Setting,
        attempt: Callable[[Case], JsonObject | SubjectFault],
        artifacts: Path,
    ) -> None:
        """Args:
        claim: The `contract` as JSON, the `device` as in an observation, the one `case` to run, or None, the `end`
            of the search, the clauses `until_violated` of a mutant, and the time `until` which the trial may last, in
            seconds of the monotonic clock.
        attempt: Runs one case. An exception from it ends the search.
        artifacts: The folder for the counterexample. It also holds each case while the case runs, so that a process
            that dies or hangs leaves its case behind.
        """
        self._contract = parse(claim["contract"], Path("contract.json"), b"")
        self._device, self._only, self._setting = Device.from_json(claim["device"]), claim["case"], setting
        self._attempt, self._place = attempt, artifacts / COUNTEREXAMPLE
        self._end, self._until = SearchEnd(claim["end"]), float(claim["until"])
        self._until_violated: frozenset[str] = frozenset(claim["until_violated"])
        self._violated: frozenset[str] = frozenset()
        self._known: dict[str, CaseResult] = {}
        self._left = math.inf
        self._tried = 0

    @property
    def results(self) -> tuple[CaseResult, ...]:
        """The result of every case that was tried, in order."""
        return tuple(self._known.values())

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> CaseResult | None:
        """Try the cases of `first`, then draw others until `examples` were tried or the subject raised.

        If the claim names one `case`, only that case is tried. A search may end at a refutation. The returned case is
        stored as the counterexample at once, because a mutant's trial ends once the case is measured.

        Returns: the refuting case that violates most clauses, the earliest of several; None if no case refutes.

        Raises:
            ValueError: the strategy draws too few different cases.
        """

        def each(case: Case) -> None:
            self._steered(case)
            if len(self._known) >= examples:
                raise _Stop

        with self._until_stopped():
            for case in first if self._only is None else [self._only]:
                self._try(case)
            for number in range(_MOST_ROUNDS if self._only is None else 0):
                if len(self._known) < examples:
                    self._draw(number, cases, each, examples, Phase.generate, Phase.target)
        refuting = [result for result in self.results if result.violated]
        if len(self._known) < examples and not refuting and self._only is None:
            raise ValueError(f"the strategy draws {len(self._known)} different cases of the {examples} asked for")
        refutation = max(refuting, key=lambda result: len(result.violated), default=None)
        self._tried = len(self._known)
        return refutation and self._refuting(refutation)

    def shrink(self, cases: SearchStrategy[Any], refutation: CaseResult, examples: int) -> CaseResult:
        """Store a case that refutes the claim, or a simpler case that violates at least the same clauses.

        The search for a simpler one tries at most `examples` further cases, or fifty if that is more. It ends after
        half of the trial's remaining time. If a case ends the process meanwhile, the simplest case so far remains
        stored. The simplest case runs once more.

        Returns: the stored case, and whether a second run violates the same clauses.
        """
        if self._only is not None or self._end is not SearchEnd.SIMPLEST:
            return refutation
        best = self._refuting(self._simpler(cases, refutation, examples))
        return self._refuting(replace(best, repeats=best.violated <= self._run(best.case).violated))

    def _refuting(self, result: CaseResult) -> CaseResult:
        """Store this result as the counterexample."""
        if self._only is None:
            error = "" if result.fault is None else Redactor().mask(str(result.fault))
            clauses, shrunk = tuple(sorted(result.violated)), self._end is SearchEnd.SIMPLEST
            case, measured, repeats = result.case, result.measured, result.repeats
            self._keep(Counterexample(case, clauses, measured, error, self._tried, shrunk, repeats))
        return result

    def _simpler(self, cases: SearchStrategy[Any], refutation: CaseResult, examples: int) -> CaseResult:
        """The simplest case that hypothesis finds; the given case if it finds none."""
        self._left = max(_FEWEST_SHRINKS, examples)
        now = time.monotonic()
        end, simplest = now + (self._until - now) / 2, refutation

        def each(case: Case) -> None:
            nonlocal simplest
            if time.monotonic() > end:
                raise _Stop
            result = self._steered(case)
            if refutation.violated <= result.violated:
                if _size(result) < _size(simplest):
                    simplest = self._refuting(result)
                raise _Wanted(result)

        with self._until_stopped():
            try:
                for number in range(_MOST_ROUNDS):
                    self._draw(number, cases, each, examples, Phase.generate, Phase.target, Phase.shrink)
            except _Wanted as wanted:
                return wanted.result
        return simplest

    def _draw(
        self, number: int, cases: SearchStrategy[Any], each: Callable[[Case], None], examples: int, *phases: Phase
    ) -> None:
        """Let hypothesis draw cases for `each`. The same `number` gives the same cases."""
        settings = hypothesis.settings(
            max_examples=examples,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        hypothesis.configuration.set_hypothesis_home_dir(
            self._setting.workspace / HYPOTHESIS
        )  # else it uses the current one
        try:
            hypothesis.seed(_MOST_ROUNDS * self._setting.seed + number)(settings(hypothesis.given(cases)(each)))()
        finally:
            hypothesis.configuration.set_hypothesis_home_dir(None)

    def _steered(self, case: Case) -> CaseResult:
        """Try a case, and report its ratios to the thresholds as hypothesis targets."""
        result = self._try(case)
        for clause, near in result.nearness.items():
            hypothesis.target(math.log(min(max(near, _LEAST), 1 / _LEAST)), label=clause)
        return result

    def _try(self, case: Case) -> CaseResult:
        """The result of a case, from memory if it was tried before."""
        try:
            key = json.dumps(case, sort_keys=True, allow_nan=False)
            case = strictjson.loads(key)  # as a replay reads it: no tuples, keys sorted
        except (TypeError, ValueError) as error:
            raise _Stop(TypeError(f"a case must be a map of finite JSON values: {error}")) from error
        if key in self._known:
            return self._known[key]
        if self._left <= 0:
            return CaseResult(case)  # no tries remain
        self._left -= 1
        is_shrinking = self._left != math.inf
        if not is_shrinking:
            self._keep(Counterexample(case, (COMPLETES,), {}, "the process ended on it, or it did not end"))
        try:
            result = self._run(case)
        except BaseException as error:
            raise _Stop(error) from error
        finally:
            if not is_shrinking:
                self._keep(None)
        self._known[key] = result
        self._violated |= result.violated
        if not is_shrinking and self._is_enough(result):
            raise _Stop
        return result

    def _is_enough(self, result: CaseResult) -> bool:
        """Whether no further case is tried after this one."""
        if self._until_violated and self._until_violated <= self._violated:
            return True
        return result.fault is not None or (self._end is SearchEnd.REFUTED and bool(result.violated))

    def _run(self, case: Case) -> CaseResult:
        measured = self._attempt(case)
        if isinstance(measured, SubjectFault):
            return CaseResult(case, fault=measured, violated=frozenset({COMPLETES}))
        listed = {clause.path[0] for clause in self._contract.clauses if clause.path[1:2] == (ITEM,)}
        for name in measured:
            if name not in listed:
                known = ", ".join(sorted(listed)) or "nothing"
                raise ValueError(f"{name!r} is measured on every case; the contract bounds the items of {known} only")
        given = (self._contract, measured, self._setting.parameters, self._device)
        violated = frozenset(
            clause_result.id for clause_result in judge_case(*given) if clause_result.outcome is Outcome.FAIL
        )
        return CaseResult(case, measured, None, violated, nearness(*given))

    @staticmethod
    @contextmanager
    def _until_stopped() -> Iterator[None]:
        try:
            yield
        except _Stop as stop:
            if stop.error is not None:
                raise stop.error from stop.error.__cause__

    def _keep(self, counterexample: Counterexample | None) -> None:
        if counterexample is None:
            self._place.unlink(missing_ok=True)
        else:
            strictjson.dump(counterexample.to_json(), self._place)


def _size(result: CaseResult) -> tuple[int, str]:
    """Order results by the length of their cases. Hypothesis does not expose its own order."""
    text = json.dumps(result.case, sort_keys=True)
    return len(text), text

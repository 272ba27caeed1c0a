"""The search behind `Trial.search`: hypothesis draws cases, the contract says which refute, the simplest is kept.

It goes in two passes. The first tries as many cases as were asked for, whatever comes of them, steered towards the
thresholds; only a subject that raises ends it. The second, only where a case refuted the claim, draws the same cases
again up to that one, and shrinks it. A case is run once: where it comes again, what came of it is looked up. So all of
it is determined by the seed and the subject, and a subject that wavers cannot confuse it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.strategies import SearchStrategy

from harness.authoring.faults import SubjectFault
from harness.authoring.setting import Setting
from harness.authoring.trial import Case
from harness.base import strictjson
from harness.base.device import Device
from harness.base.redaction import Redactor
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract import parse
from harness.contract.builtin import COMPLETES
from harness.contract.clauses import ITEM
from harness.search.counterexample import COUNTEREXAMPLE, Counterexample, judge_case, nearness

__all__ = ["CaseSearch", "Result"]

_MOST_ROUNDS = 5
"""How often a strategy is asked, which draws too few different cases at once."""
_FEWEST_SHRINKS = 50
_LEAST = 1e-30


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    case: Case
    measured: JsonObject = field(default_factory=dict)
    """By name; empty where the subject raised."""
    fault: SubjectFault | None = None
    """What the subject raised."""
    violated: frozenset[str] = frozenset()
    """The clauses that the case violates."""
    nearness: Mapping[str, float] = field(default_factory=dict)
    """For each clause with a threshold, how near the case is to violating it."""


class _Stop(BaseException):
    """Ends a pass, with an error where there is one; hypothesis takes no notice of what is no `Exception`."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(error)
        self.error = error


class _Wanted(Exception):
    """Tells hypothesis that this is a case to shrink."""

    def __init__(self, result: Result) -> None:
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
        claim: the `contract` as JSON, the `device` as in an observation, and the one `case` to be run, or None.
        attempt: runs one case; what it raises ends the search.
        artifacts: where the counterexample is left. A case that is running stands there as one, so that it is known
            on which case the process died or hung.
        """
        self._contract = parse(claim["contract"], Path("contract.json"), b"")
        self._device, self._only, self._setting = Device.from_json(claim["device"]), claim["case"], setting
        self._attempt, self._place = attempt, artifacts / COUNTEREXAMPLE
        self._known: dict[str, Result] = {}
        self._left = math.inf

    @property
    def results(self) -> tuple[Result, ...]:
        """Every case that was tried, in order."""
        return tuple(self._known.values())

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> Result | None:
        """Try the cases of `first`, then draw others until `examples` were tried or the subject raised.

        Where only one case is to be run, it alone is tried.

        Returns: of the cases that refute the claim the one that violates most clauses, of these the earliest.

        Raises:
            ValueError: the strategy does not draw so many different cases.
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
        return max(refuting, key=lambda result: len(result.violated), default=None)

    def shrink(self, cases: SearchStrategy[Any], found: Result, examples: int) -> Result:
        """A simpler case that violates at least the same clauses; the given one where none is found.

        At most `examples` further cases (and no fewer than fifty) are tried.
        """
        if self._only is not None:
            return found
        tried, self._left = len(self._known), max(_FEWEST_SHRINKS, examples)
        best = found

        def each(case: Case) -> None:
            result = self._steered(case)
            if found.violated <= result.violated:
                raise _Wanted(result)

        with self._until_stopped():
            try:
                for number in range(_MOST_ROUNDS):
                    self._draw(number, cases, each, examples, Phase.generate, Phase.target, Phase.shrink)
            except _Wanted as wanted:
                best = wanted.result
        error = "" if best.fault is None else Redactor().mask(str(best.fault))
        self._keep(Counterexample(best.case, tuple(sorted(best.violated)), best.measured, error, tried, shrunk=True))
        return best

    def _draw(
        self, number: int, cases: SearchStrategy[Any], each: Callable[[Case], None], examples: int, *phases: Phase
    ) -> None:
        """Let hypothesis draw cases for `each`; the same number draws the same cases."""
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
        hypothesis.configuration.set_hypothesis_home_dir(self._setting.workspace)  # else it makes a folder in this one
        try:
            hypothesis.seed(_MOST_ROUNDS * self._setting.seed + number)(settings(hypothesis.given(cases)(each)))()
        finally:
            hypothesis.configuration.set_hypothesis_home_dir(None)

    def _steered(self, case: Case) -> Result:
        """Try a case, and tell hypothesis how near to the thresholds it came."""
        result = self._try(case)
        for clause, near in result.nearness.items():
            hypothesis.target(math.log(min(max(near, _LEAST), 1 / _LEAST)), label=clause)
        return result

    def _try(self, case: Case) -> Result:
        """What came of a case, from memory if it was tried before."""
        try:
            key = json.dumps(case, sort_keys=True, allow_nan=False)
            case = strictjson.loads(key)  # as a replay will read it: no tuples, no order of keys
        except (TypeError, ValueError) as error:
            raise _Stop(TypeError(f"a case must be a map of finite JSON values: {error}")) from error
        if key in self._known:
            return self._known[key]
        if self._left <= 0:
            return Result(case)  # by now the best so far has to do
        self._left -= 1
        self._keep(Counterexample(case, (COMPLETES,), {}, "the process ended on it, or it did not end"))
        try:
            result = self._run(case)
        except BaseException as error:
            raise _Stop(error) from error
        finally:
            self._keep(None)
        self._known[key] = result
        if result.fault is not None and self._left == math.inf:
            raise _Stop
        return result

    def _run(self, case: Case) -> Result:
        measured = self._attempt(case)
        if isinstance(measured, SubjectFault):
            return Result(case, fault=measured, violated=frozenset({COMPLETES}))
        listed = {clause.path[0] for clause in self._contract.clauses if clause.path[1:2] == (ITEM,)}
        for name in measured:
            if name not in listed:
                known = ", ".join(sorted(listed)) or "nothing"
                raise ValueError(f"{name!r} is measured on every case; the contract bounds the items of {known} only")
        given = (self._contract, measured, self._setting.parameters, self._device)
        violated = frozenset(one.id for one in judge_case(*given) if one.outcome is Outcome.FAIL)
        return Result(case, measured, None, violated, nearness(*given))

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

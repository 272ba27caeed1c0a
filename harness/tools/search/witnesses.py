"""The search behind `harness lint`: for observations that satisfy a contract, and that violate one clause of it.

A contract that no observation satisfies is useless, and so is a clause that none violates. Hypothesis draws the
observations (see `harness.tools.search.strategies`), and the judge judges them. The search is deterministic and
bounded. It can miss rare observations; add them to the contract's `examples`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract import Contract, Profile
from harness.contract.clauses import Clause, ClauseResult, SchemaClause, nodes
from harness.contract.reasons import Reason
from harness.contract.rules import BROKEN, literals
from harness.judging.judge import Judgment, judge, requested
from harness.judging.observation import Observation, Residency
from harness.tools.search.strategies import Strategy, fitting, pool_of, replaced, values, violations

__all__ = ["Search", "Undecided", "Violation", "prepare", "without_traces"]

_SETTINGS = hypothesis.settings(
    database=None,
    deadline=None,
    derandomize=True,
    phases=[hypothesis.Phase.generate],
    print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)

_Source = Strategy | list[dict[str, Any]]
"""A source of observations: a strategy or a list."""


class _Found(BaseException):
    """Ends a search. A `BaseException`, because hypothesis draws the value of an `Exception` again, to explain it."""

    def __init__(self, measurements: dict[str, Any]) -> None:
        super().__init__(measurements)
        self.measurements = measurements


class Undecided(Exception):
    """Hypothesis cannot draw an observation of the contract, so the search has no result."""


@dataclass(frozen=True)
class Violation:
    """The result of the search for one clause."""

    example: JsonObject | None = None
    """Measurements with which the clause fails; None if none were found."""
    reason: Reason | None = None
    """Why the rule could not be evaluated; None if it could."""


@dataclass
class Search:
    """The search for one contract under one profile."""

    contract: Contract
    profile: Profile
    without: frozenset[str] = frozenset()
    """Ids of broken rules, which the search ignores."""
    judged: int = field(default=0, init=False)
    """How many observations the search has judged."""

    def __post_init__(self) -> None:
        numbers = [number for rule in self.contract.rules for number in literals(rule.tree)]
        described = _exemplified(self.contract.observation)
        self._pool = pool_of({"properties": described}, (*numbers, *self.profile.parameters.values()))
        self._values: dict[str, Strategy] = {
            name: values(schema, self._pool) for name, schema in described.items() if name not in self.profile.omits
        }
        self._device = _device(self.contract, self.profile)
        self._reads = {rule.id: rule.measurements for rule in self.contract.rules}
        self._reads |= {clause.id: frozenset(clause.path[:1]) for clause in self.contract.clauses}

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The contract's own clauses that the profile judges, except the ignored ones."""
        left_aside = self.without.union(self.contract.unjudged(self.profile.name))
        clauses: tuple[Clause, ...] = (*self.contract.clauses, *self.contract.rules)
        return tuple(clause for clause in clauses if clause.id not in left_aside)

    def judge(self, measurements: JsonObject, contract: Contract | None = None) -> Judgment:
        """Judge measurements as if their trial ran as requested and completed, by the contract or a part of it."""
        self.judged += 1
        observation = Observation(
            subject=self.contract.subject,
            profile=self.profile.name,
            parameters=self.profile.parameters,
            device=self._device,
            measurements=measurements,
            resolved=requested(self.contract, self.profile.name, self.profile.parameters, self._device.type),
            residency=Residency(allocator_peak_bytes=1, driver_seen=True),
        )
        return judge(contract or self.contract, observation)

    def unsatisfied(self, measurements: JsonObject) -> tuple[ClauseResult, ...]:
        """The clauses that are not PASS for these measurements, except the ignored ones."""
        judged = (clause for clause in self.judge(measurements).clauses if clause.id not in self.without)
        return tuple(clause for clause in judged if clause.outcome is not Outcome.PASS)

    def satisfying(self) -> dict[str, Any]:
        """Measurements that satisfy the contract or, if none were found, the nearest.

        The search starts from the best measurements so far and draws those anew that an unsatisfied clause reads. It
        stops when no redraw satisfies more clauses.

        Raises:
            Undecided: hypothesis can draw no observation, for example because its lists are nested too deeply.
        """
        best = self._first(self._whole(), lambda _: True, 10)
        if best is None:
            raise Undecided("hypothesis can draw no observation of this shape")
        better = self._first(self._whole(), lambda measurements: not self.unsatisfied(measurements), 25)
        if better is not None:
            return better
        wrong = self.unsatisfied(best)
        while wrong:
            count = len(wrong)
            involved = sorted({name for result in wrong for name in self._reads.get(result.id, ())})
            for strategy, budget in ((self._redrawn(best, involved), 100), (self._whole(), 200)):
                better = self._first(strategy, lambda measurements: len(self.unsatisfied(measurements)) < count, budget)  # noqa: B023
                if better is not None:
                    best, wrong = better, self.unsatisfied(better)
                    break
            else:
                return best
        return best

    def violating(self, clause: Clause, base: JsonObject) -> Violation:
        """Measurements that violate this clause, found from the satisfying `base`.

        Those with which a rule cannot be evaluated count only if there are no others.
        """
        broken = Violation()
        alone = self._alone(clause)

        def fails(measurements: dict[str, Any]) -> bool:
            nonlocal broken
            if not any(result.outcome is Outcome.FAIL for result in self.judge(measurements, alone).clauses):
                return False
            (result,) = (result for result in self.judge(measurements).clauses if result.id == clause.id)
            if result.outcome is Outcome.FAIL and result.reason is not None and result.reason.code in BROKEN:
                broken = Violation(measurements, result.reason)
                return False
            return result.outcome is Outcome.FAIL

        for source, budget in self._attempts(clause, base):
            if (example := self._first(source, fails, budget)) is not None:
                return Violation(example)
        return broken

    def _alone(self, clause: Clause) -> Contract:
        """The contract with this clause only, which is judged faster."""
        clauses = tuple(candidate for candidate in self.contract.clauses if candidate.id == clause.id)
        rules = tuple(rule for rule in self.contract.rules if rule.id == clause.id)
        return replace(self.contract, clauses=clauses, rules=rules)

    def _attempts(self, clause: Clause, base: JsonObject) -> Iterator[tuple[_Source, int]]:
        """Sources, each with the number of observations to judge. Later sources change more measurements."""
        if isinstance(clause, SchemaClause):
            wrong = self._wrong_values(clause, base)
            yield wrong, len(wrong)
            return
        read = self._reads[clause.id]
        yield self._redrawn(base, sorted(read), most=1), 60
        yield self._redrawn(base, sorted(read)), 200
        # Some rules fail only for values that the schema forbids too.
        for inner in self.contract.clauses:
            if inner.path and inner.path[0] in read and inner.keyword != "type":
                wrong = self._wrong_values(inner, base)
                yield wrong, len(wrong)

    def _wrong_values(self, clause: SchemaClause, base: JsonObject) -> list[dict[str, Any]]:
        """Copies of the base, each with another value that violates the clause."""
        node = dict(nodes(self.contract.observation))[clause.path]
        present: list[Any] = []
        replaced(base, clause.path, present.append)  # only reads the value at the path
        if not present:
            return []
        wrong = violations(clause, node, present[0], self._pool)
        return [replaced(base, clause.path, lambda _, value=value: value) for value in wrong]  # type: ignore[misc]

    def _whole(self) -> Strategy:
        return st.fixed_dictionaries(self._values)

    def _redrawn(self, base: JsonObject, names: list[str], most: int | None = None) -> Strategy:
        """The base with some of these measurements drawn anew, also from the others' values."""
        if not names:
            return st.just(dict(base))
        present = [value for value in base.values() if isinstance(value, (int, float, str))]
        properties = self.contract.observation["properties"]
        drawn: dict[str, Strategy] = {}
        for name in names:
            borrowed = fitting(properties[name], present)
            drawn[name] = st.sampled_from(borrowed) | self._values[name] if borrowed else self._values[name]
        chosen = st.lists(st.sampled_from(names), min_size=1, max_size=most or len(names), unique=True)
        drawing = chosen.flatmap(lambda chosen: st.fixed_dictionaries({name: drawn[name] for name in chosen}))
        return drawing.map(lambda new: {**base, **new})

    def _first(self, source: _Source, wanted: Callable[[Any], bool], budget: int) -> dict[str, Any] | None:
        if isinstance(source, list):
            return next(filter(wanted, source[:budget]), None)
        return _drawn(source, wanted, budget)


def _drawn(source: Strategy, wanted: Callable[[Any], bool], budget: int) -> dict[str, Any] | None:
    """The first value of a strategy that is wanted; None if there is none."""

    def each(value: Any) -> None:
        if wanted(value):
            raise _Found(value)

    try:
        hypothesis.seed(0)(hypothesis.settings(_SETTINGS, max_examples=budget)(hypothesis.given(source)(each)))()
    except _Found as found:
        return found.measurements
    except hypothesis.errors.Unsatisfiable:
        pass
    return None


@contextmanager
def without_traces() -> Iterator[None]:
    """Keep hypothesis from writing its own folder into the current one."""
    with tempfile.TemporaryDirectory(prefix="harness-lint-") as folder:
        hypothesis.configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            hypothesis.configuration.set_hypothesis_home_dir(None)


def prepare() -> None:
    """Draw a number. Hypothesis reads the constants in all loaded modules before it draws its first one."""
    with without_traces():
        _drawn(st.lists(st.integers(), min_size=100), lambda _: False, 3)


def _device(contract: Contract, profile: Profile) -> Device:
    """A device that meets the profile's requirements, with the target's values if there are any."""
    if profile.requires["device"] != "cuda":
        return Device("cpu", "x86_64", memory_bytes=64 << 30, memory_source="psutil")
    needed = profile.requires.get("compute_capability", "9.0")
    return Device(
        type="cuda",
        name=contract.target.get("device", "NVIDIA GPU"),
        compute_capability=contract.target.get("compute_capability", needed),
        memory_bytes=int(profile.requires.get("memory_gib", 80) * 2**30),
        memory_source="nvml",
        unified=False,
        uuid="GPU-0",
    )


def _exemplified(observation: JsonObject) -> dict[str, JsonObject]:
    """The schema of each measurement. Its examples include its values in the examples of whole observations."""
    wholes = observation.get("examples", [])
    described: dict[str, JsonObject] = {}
    for name, schema in observation["properties"].items():
        examples = [*schema.get("examples", []), *(whole[name] for whole in wholes if name in whole)]
        described[name] = {**schema, "examples": examples} if examples else schema
    return described

"""A trial as its falsifier sees it: the subject, the parameters, and where measurements go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from harness.authoring.exact import number, plain, whole
from harness.authoring.external_subject import ExternalSubject
from harness.authoring.faults import NotObserved, SubjectFault
from harness.authoring.recorder import Recorder
from harness.authoring.reports import Logged, Measured, Resolved, Stepped, Used
from harness.authoring.setting import Setting
from harness.authoring.toolkit_log import LONGEST
from harness.base import strictjson
from harness.base.shortening import cut
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Case", "CaseResult", "NewSearch", "Search", "Trial"]

S = TypeVar("S")


Case = JsonObject
"""A case of a search: a map of JSON values from which a falsifier's `check` makes its inputs."""


@dataclass(frozen=True)
class CaseResult:
    """The result of one case."""

    case: Case
    measured: JsonObject = field(default_factory=dict)
    """What `check` measured, by name; empty if the subject raised."""
    fault: SubjectFault | None = None
    """What the subject raised. None if it raised nothing."""
    violated: frozenset[str] = frozenset()
    """The clauses that the case violates."""
    nearness: Mapping[str, float] = field(default_factory=dict)
    """For each clause with a threshold, the case's ratio to it; above 1 is a violation."""
    repeats: bool | None = None
    """Whether it violated these clauses again when it was run once more; None if it was not."""


class Search(Protocol):
    """A search for a case that refutes the claim; `harness.tools.search.cases` is the one that trials get."""

    @property
    def results(self) -> tuple[CaseResult, ...]:
        """Every case that was tried, in order."""
        ...

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> CaseResult | None:
        """Try cases. Returns the one that violates most clauses; None if none does."""
        ...

    def shrink(self, cases: SearchStrategy[Any], refuting: CaseResult, examples: int) -> CaseResult:
        """A simpler case that violates at least the same clauses."""
        ...


NewSearch = Callable[[Callable[[Case], JsonObject | SubjectFault]], Search]
"""Starts a search, given what runs one case."""


class Trial(Generic[S]):
    """One execution of a falsifier against one subject. It records measurements and decides no verdict."""

    def __init__(
        self,
        subject: S,
        setting: Setting,
        artifacts: Path,
        recorder: Recorder,
        new_search: NewSearch | None = None,
    ) -> None:
        """Args:
        new_search: starts a search over cases; without it the trial cannot search.
        """
        self._subject = subject
        self._setting = setting
        self._artifacts = artifacts
        self._recorder = recorder
        self._new_search = new_search
        self._measured: dict[str, Any] = {}

    @property
    def subject(self) -> S:
        """The implementation under test."""
        return self._subject

    @property
    def setting(self) -> Setting:
        """What the subject was built from."""
        return self._setting

    @property
    def artifacts(self) -> Path:
        """A folder whose small files go into the bundle."""
        return self._artifacts

    @property
    def parameters(self) -> JsonObject:
        """The parameters of the profile, overrides included."""
        return self._setting.parameters

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        return self._setting.device

    @property
    def seed(self) -> int:
        """The seed of this trial; random, numpy and torch have been seeded with it."""
        return self._setting.seed

    @property
    def workspace(self) -> Path:
        """A folder of this trial alone, removed afterwards."""
        return self._setting.workspace

    @property
    def cache(self) -> Path:
        """A folder kept between runs."""
        return self._setting.cache

    def measure(self, **measurements: Any) -> None:
        """Record measurements by name. A measurement is final, except that a list can grow at its end.

        Values are JSON, numpy's scalars and arrays, and torch's tensors; no method of a subclass is asked. NaN and
        infinities are recorded as such, and judged to violate every clause that looks at them. An `Unobserved`
        value, also one within a list or a map, is not measured, and the clauses that read it say why. A mutant's trial
        ends here as soon as it has violated the clauses that the contract names for it.

        Raises:
            UndeclaredMeasurement: the contract's observation has no property of that name.
            MeasurementTooLarge: the values have more than 16 MiB as JSON.
            TypeError: the value is none of these.
            ValueError: another value of that name was measured before.
        """
        self._recorder.require_declared(measurements)
        observed: dict[str, Any] = {}
        for name, value in measurements.items():
            try:
                observed[name] = plain(value)
            except NotObserved as reason:
                self._recorder.hide([name], reason)
        for name, value in observed.items():
            before = self._measured.setdefault(name, value)
            if value != before and not (isinstance(before, list) and value[: len(before)] == before):
                raise ValueError(f"{name!r} was measured before, with another value; only a list can grow")
        self._measured.update(observed)
        if observed:
            self._recorder.report(Measured(observed))

    def step(self, step: int, **values: float) -> None:
        """Record one row of the step series: `trial.step(3, loss=5.1, tokens_per_second=900.0)`.

        It is shown while the trial runs, and becomes metrics.csv. A value called `seconds` is `own_seconds` there,
        beside the seconds since the trial began.

        Raises:
            TypeError: a value is no number, or `step` is no integer.
        """
        self._recorder.report(Stepped(whole(step), {name: number(value) for name, value in values.items()}))

    def resolve(
        self,
        *,
        device: str | None = None,
        dtype: str | None = None,
        backend: str | None = None,
        steps: int | None = None,
    ) -> None:
        """Record what really ran, read back from the running process: `trial.resolve(device=weight.device.type)`.

        Never pass a configuration value: the judge compares this with what was requested. For a subject outside
        this process, what it says of itself (`ExternalSubject.ran`) is recorded instead.
        """
        values = {"device": device, "dtype": dtype, "backend": backend, "steps": steps}
        if isinstance(self._subject, ExternalSubject):
            values = dict(self._subject.ran())
            if why := self._subject.unheard():
                self._recorder.unheard = NotObserved(why)
        self._recorder.report(Resolved({name: plain(value) for name, value in values.items() if value is not None}))

    def log(self, text: str) -> None:
        """Write a line into the trial's log: `trial.log("shard 2 of 3 is held out")`.

        Say what the falsifier decides and no measurement shows. The log has the seconds since the trial's start, and
        every measurement, anyway. No verdict depends on it.

        Raises:
            TypeError: this is no text.
        """
        if type(text) is not str:
            raise TypeError(f"a line of the log must be a str, not {type(text).__name__}")
        self._write(text)

    def _write(self, text: str, topic: str = "") -> None:
        self._recorder.report(Logged(text[:LONGEST], topic))

    def used(self, names: Iterable[str]) -> None:
        """Record source files that another process of the subject used, by their paths from the project's root.

        What this process imports or reads is recorded anyway.
        """
        self._recorder.report(Used(tuple(names)))

    def search(
        self,
        cases: SearchStrategy[Any],
        check: Callable[[Any], JsonObject],
        *,
        examples: int,
        first: Iterable[JsonObject] = (),
    ) -> int:
        """Look for a case that refutes the claim, among `examples` that hypothesis draws from `cases`.

            trial.measure(cases=trial.search(pairs(), check, examples=trial.parameters["cases"]))

        `check` runs the subject on one case, inside `subject_fault()`, and returns what it measured, by name. In the
        contract each name is a list whose items are bounded: `errors[].maximum` decides whether a case refutes the
        claim, not `check`. The lists, with the measurements of all cases in their order, are recorded here.

        The simplest case found that violates the same clauses goes into the bundle as counterexample.json, and
        `harness replay` runs it again; so does a case on which the subject raises, crashes or hangs. Equal seeds draw
        equal cases, so a case must hold everything that `check` depends on, the seeds of its tensors included.

        Args:
            cases: draws maps of finite JSON values.
            check: may return other names for other cases.
            first: cases that are tried before any other, such as those of known bugs; they count.

        Returns: how many cases were tried: `examples`, fewer where the subject raised, 1 when a case is replayed.

        Raises:
            ValueError: the strategy cannot draw so many different cases, or `check` measured what is no such list.
            RuntimeError: a second search of this trial, or a trial that was given no contract.
        """
        if self._new_search is None:
            raise RuntimeError("this trial cannot search: it has searched before, or was given no contract")
        new_search, self._new_search = self._new_search, None
        search = new_search(lambda case: self._attempt(check, case))
        self._write(f"searches {examples} cases, drawn with seed {self.seed}")
        refuting = search.explore(cases, first, examples)
        tried = search.results
        worst = f"this case refutes the claim: {_case_text(refuting.case)}" if refuting else "none refutes the claim"
        self._write(f"searched {len(tried)} cases; {worst}")
        lists: dict[str, list[Any]] = {}
        for result in tried:
            for name, value in result.measured.items():
                lists.setdefault(name, []).append(value)
        self.measure(**lists)
        simplest = None
        if refuting is not None:
            # The claim is refuted already. Without a fault so far, what ends the process now is not the subject's.
            with self._recorder.blaming_nobody() if refuting.fault is None else nullcontext():
                simplest = search.shrink(cases, refuting, examples)
            again = "; it does not repeat: run again, it violated fewer clauses" if simplest.repeats is False else ""
            self._write(f"the simplest refuting case: {_case_text(simplest.case)}{again}")
        for candidate in (simplest, *search.results):
            if candidate is not None and candidate.fault is not None:
                self._recorder.fault = candidate.fault
                self._recorder.enter(Phase.SUBJECT)
                raise candidate.fault
        return len(tried)

    def _attempt(self, check: Callable[[Any], JsonObject], case: JsonObject) -> JsonObject | SubjectFault:
        """What `check` measured on a case, or the subject's fault, which does not end the trial before the search."""
        measured: JsonObject = {}
        self._write(f"tries the case {_case_text(case)}", "case")
        try:
            measured = strictjson.untag_nonfinite({name: plain(value) for name, value in check(case).items()})
        except SubjectFault:
            self._recorder.enter(Phase.FALSIFIER)
        fault, self._recorder.fault = self._recorder.fault, None
        if fault is None or isinstance(fault, SubjectFault):
            return fault or measured
        raise fault

    def subject_fault(self) -> AbstractContextManager[None]:
        """Everything the subject does goes inside. An exception, a crash or a hang in here is the subject's defect.

        The trial ends there, and the built-in clause `subject.completes` fails, also where the falsifier catches what
        is raised here. `NotMeasured` and the falsifier's own mistakes in measuring pass through.
        """
        return self._recorder.subject_fault()

    def falsifier_fault(self) -> AbstractContextManager[None]:
        """For code of the falsifier that the subject calls back, such as a listener to its steps.

        Its faults are the falsifier's, also where the subject catches them.
        """
        return self._recorder.falsifier_fault()


def _case_text(case: Case) -> str:
    return cut(strictjson.dumps(strictjson.tag_nonfinite(case)), LONGEST // 4)

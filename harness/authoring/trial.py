"""The falsifier's interface: the subject, the parameters, and the functions that record measurements."""

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
"""A case of a search: a JSON object from which a falsifier's `check` builds its inputs."""


@dataclass(frozen=True)
class CaseResult:
    """The result of one case."""

    case: Case
    measured: JsonObject = field(default_factory=dict)
    """Measurements of `check` by name; empty if the subject raised."""
    fault: SubjectFault | None = None
    """The exception of the subject; None if it did not raise."""
    violated: frozenset[str] = frozenset()
    """The clauses that the case violates."""
    nearness: Mapping[str, float] = field(default_factory=dict)
    """For each clause with a threshold, the case's ratio to it; above 1 is a violation."""
    repeats: bool | None = None
    """Whether a second run of the case violated the same clauses; None without a second run."""


class Search(Protocol):
    """A search for a case that refutes the claim. `harness.tools.search.cases` implements it."""

    @property
    def results(self) -> tuple[CaseResult, ...]:
        """Every tried case, in order."""
        ...

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> CaseResult | None:
        """Try cases. Returns the one that violates the most clauses; None if no case violates any."""
        ...

    def shrink(self, cases: SearchStrategy[Any], refuting: CaseResult, examples: int) -> CaseResult:
        """Return a simpler case that violates at least the same clauses."""
        ...


NewSearch = Callable[[Callable[[Case], JsonObject | SubjectFault]], Search]
"""Creates a search from a function that runs one case."""


class Trial(Generic[S]):
    """One run of a falsifier on one subject. It records measurements and decides no verdict."""

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
        """The argument of the subject's constructor."""
        return self._setting

    @property
    def artifacts(self) -> Path:
        """A folder whose small files are copied into the bundle."""
        return self._artifacts

    @property
    def parameters(self) -> JsonObject:
        """The parameters of the profile, with all overrides."""
        return self._setting.parameters

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        return self._setting.device

    @property
    def seed(self) -> int:
        """The seed of this trial; random, numpy and torch are seeded with it."""
        return self._setting.seed

    @property
    def workspace(self) -> Path:
        """A temporary folder of this trial."""
        return self._setting.workspace

    @property
    def cache(self) -> Path:
        """A folder that persists between runs."""
        return self._setting.cache

    def measure(self, **measurements: Any) -> None:
        """Record measurements by name. A measurement is final, except that a list may be extended.

        Values are JSON values, numpy scalars and arrays, and torch tensors. No method of a subclass is called. NaN and
        infinities are recorded, and violate every clause that reads them. A value that contains an `Unobserved` is not
        measured; the clauses that read it state the reason. A mutant's trial ends in this call as soon as it has
        violated the clauses that the contract names for it.

        Raises:
            UndeclaredMeasurement: the contract's observation has no property of that name.
            MeasurementTooLarge: the values exceed 16 MiB as JSON.
            TypeError: a value has another type.
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

        Reports show the row while the trial runs, and metrics.csv holds all rows. There a value called `seconds` is
        named `own_seconds`, because `seconds` is the time since the trial began.

        Raises:
            TypeError: a value is not a number, or `step` is not an integer.
        """
        self._recorder.report(Stepped(whole(step), {name: number(value) for name, value in values.items()}))

    def resolve(
        self,
        *,
        device: str | None = None,
        dtype: str | None = None,
        backend: str | None = None,
        steps: int | None = None,
        allocated_bytes: int | None = None,
    ) -> None:
        """Record what ran, as read back from the running process: `trial.resolve(device=weight.device.type)`.

        allocated_bytes: the most GPU memory of a process that the falsifier started, if the work ran there.

        Never pass a configuration value: the judge compares these values with the requested ones. For an
        `ExternalSubject`, the values of its `ran` are recorded instead.
        """
        values: dict[str, Any] = {
            "device": device, "dtype": dtype, "backend": backend, "steps": steps, "allocated_bytes": allocated_bytes
        }  # fmt: skip
        if isinstance(self._subject, ExternalSubject):
            values = dict(self._subject.ran())
            if why := self._subject.unheard():
                self._recorder.unheard = NotObserved(why)
        self._recorder.report(Resolved({name: plain(value) for name, value in values.items() if value is not None}))

    def log(self, text: str) -> None:
        """Write a line to the trial's log: `trial.log("shard 2 of 3 is held out")`.

        Log decisions of the falsifier that no measurement shows. The log already has timestamps and every measurement.
        No verdict depends on it.

        Raises:
            TypeError: the text is not a str.
        """
        if type(text) is not str:
            raise TypeError(f"a line of the log must be a str, not {type(text).__name__}")
        self._write(text)

    def _write(self, text: str, topic: str = "") -> None:
        self._recorder.report(Logged(text[:LONGEST], topic))

    def used(self, names: Iterable[str]) -> None:
        """Record source files that another process of the subject used, as paths relative to the project's root.

        Files that this process imports or reads are recorded automatically.
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
        """Search for a case that refutes the claim, among `examples` cases that hypothesis draws.

            trial.measure(cases=trial.search(pairs(), check, examples=trial.parameters["cases"]))

        `check` runs the subject on one case, inside `subject_fault()`, and returns measurements by name. In the
        contract each name is a list with bounded items. A clause such as `errors[].maximum` decides whether a case
        refutes the claim; `check` does not. This method records the lists, with one item for each case, in order.

        The bundle stores the simplest case that violates the same clauses as counterexample.json, for `harness
        replay`. A case on which the subject raises, crashes or hangs is stored too. Equal seeds draw equal cases, so
        a case must contain everything that `check` depends on, including the seeds of its tensors.

        Args:
            cases: a hypothesis strategy for JSON objects with finite values.
            check: runs one case. It may return other names for other cases.
            examples: the number of cases, including `first`.
            first: cases to try before all others, such as those of known bugs.

        Returns:
            the number of tried cases: `examples`, fewer if the subject raised, 1 if a case is replayed.

        Raises:
            ValueError: the strategy cannot draw so many different cases, or the contract has no such list.
            RuntimeError: the trial has searched before, or has no contract.
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
            # The claim is already refuted. Without a fault so far, the subject is not at fault if the process dies now.
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
        """Run `check` on a case. Return its measurements, or the subject's fault, after which the search continues."""
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
        """Return a context for all calls of the subject. An exception, crash or hang inside is the subject's fault.

        The trial then ends, and the built-in clause `subject.completes` fails, even if the falsifier catches the
        exception. `NotMeasured` and the falsifier's own errors in measuring propagate unchanged.
        """
        return self._recorder.subject_fault()

    def falsifier_fault(self) -> AbstractContextManager[None]:
        """Return a context for code of the falsifier that the subject calls, such as a callback for each step.

        An exception inside is the falsifier's fault, even if the subject catches it.
        """
        return self._recorder.falsifier_fault()


def _case_text(case: Case) -> str:
    return cut(strictjson.dumps(strictjson.tag_nonfinite(case)), LONGEST // 4)

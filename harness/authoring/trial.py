"""A trial as its falsifier sees it: the subject, the parameters, and where measurements go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from harness.authoring.reports import Entered, Measured, Report, Resolved, Stepped, Unseen
from harness.base import strictjson
from harness.base.vocabulary import Phase

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Case",
    "FalsifierFault",
    "MeasurementTooLarge",
    "NewSearch",
    "NotMeasured",
    "NotShown",
    "Setting",
    "SubjectFault",
    "Trial",
    "UndeclaredMeasurement",
    "described",
]

S = TypeVar("S")


class NotMeasured(Exception):
    """Raised by a falsifier when the machine, not the subject, keeps it from measuring; the text says why."""


class NotShown(NotMeasured):
    """Raised by a subject that is looked at from outside, for what cannot be seen of it; the text says what and why."""


class UndeclaredMeasurement(ValueError):
    """A falsifier measured something that its contract does not declare."""


class MeasurementTooLarge(ValueError):
    """A falsifier measured more than a bundle can hold."""


class SubjectFault(Exception):
    """The subject raised; the cause is its exception."""


class FalsifierFault(Exception):
    """The falsifier raised while the subject called it back; the cause is its exception."""


# Raised inside `subject_fault()`, as in a callback that the subject was given, these still are not the subject's.
_NOT_THE_SUBJECTS = (NotMeasured, UndeclaredMeasurement, MeasurementTooLarge, FalsifierFault)


Case = Mapping[str, Any]
"""A case of a search: a map of JSON values from which a falsifier's `check` makes its inputs."""


class SearchResult(Protocol):
    """What came of one case."""

    @property
    def measured(self) -> Mapping[str, Any]:
        """What `check` measured, by name; empty where the subject raised."""
        ...

    @property
    def fault(self) -> SubjectFault | None:
        """What the subject raised."""
        ...


R = TypeVar("R", bound=SearchResult)


class Search(Protocol[R]):
    """A search for a case that refutes the claim; `harness.search.explorer` is the one that trials get."""

    @property
    def results(self) -> tuple[R, ...]:
        """Every case that was tried, in order."""
        ...

    def explore(self, cases: SearchStrategy[Any], first: Iterable[Case], examples: int) -> R | None:
        """Try cases; the one that violates most clauses, None where none does."""
        ...

    def shrink(self, cases: SearchStrategy[Any], found: R, examples: int) -> R:
        """A simpler case that violates at least the same clauses."""
        ...


NewSearch = Callable[[Callable[[Case], Mapping[str, Any] | SubjectFault]], Search[Any]]
"""Starts a search, given what runs one case."""


@dataclass(frozen=True)
class Setting:
    """What a subject is built from."""

    parameters: Mapping[str, Any]
    """Those of the profile, with the overrides of the command line and of the mutant."""
    device: str
    """"cpu" or "cuda:0"; the process sees no GPU but the leased one."""
    seed: int
    workspace: Path
    """A folder of this trial alone, removed afterwards."""
    cache: Path
    """A folder kept between runs and shared between trials; it may be wiped at any time. Writers take a lock."""


class Trial(Generic[S]):
    """One execution of a falsifier against one subject. It records; the verdict is not its business."""

    def __init__(
        self,
        setting: Setting,
        artifacts: Path,
        declared: frozenset[str],
        report: Report,
        new_search: NewSearch | None = None,
    ) -> None:
        """Args:
        new_search: starts a search over cases; without it the trial cannot search.
        """
        self.setting = setting
        self.artifacts = artifacts
        """Small files left in this folder go into the bundle."""
        self._declared = declared
        self._report = report
        self._new_search = new_search
        self._subject: S | None = None
        self._phase = Phase.FALSIFIER
        self._fault: Exception | None = None
        self._not_shown: NotShown | None = None

    @property
    def subject(self) -> S:
        """The implementation under test."""
        if self._subject is None:
            raise RuntimeError("the subject has not been built yet")
        return self._subject

    @property
    def is_elsewhere(self) -> bool:
        """Whether the subject says that its work is not done in this process: its class has `is_elsewhere = True`."""
        return getattr(self._subject, "is_elsewhere", False) is True

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the profile, overrides included."""
        return self.setting.parameters

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:0"."""
        return self.setting.device

    @property
    def seed(self) -> int:
        """The seed of this trial; random, numpy and torch have been seeded with it."""
        return self.setting.seed

    @property
    def workspace(self) -> Path:
        """A folder of this trial alone, removed afterwards."""
        return self.setting.workspace

    @property
    def cache(self) -> Path:
        """A folder kept between runs."""
        return self.setting.cache

    def measure(self, **measurements: Any) -> None:
        """Record measurements by name; a later value replaces an earlier one.

        Values are JSON, or anything with `tolist()` such as a tensor. NaN and infinities are recorded as such, and
        judged to violate every clause that looks at them.

        Raises:
            UndeclaredMeasurement: the contract's observation has no property of that name.
            MeasurementTooLarge: the values have more than 16 MiB as JSON.
            TypeError: the value is neither.
        """
        self._declared_all(measurements)
        self._report(Measured({name: _plain(value) for name, value in measurements.items()}))

    def step(self, step: int, **values: float) -> None:
        """Record one row of the step series: `trial.step(3, loss=5.1, tokens_per_second=900.0)`.

        It is shown while the trial runs, and becomes metrics.csv. A value called `seconds` is `own_seconds` there,
        beside the seconds since the trial began.

        Raises:
            TypeError: a value is no number.
        """
        self._report(Stepped(int(step), {name: _number(value) for name, value in values.items()}))

    def resolve(
        self,
        *,
        device: str | None = None,
        dtype: str | None = None,
        backend: str | None = None,
        steps: int | None = None,
    ) -> None:
        """Record what really ran, read back from the running process: `trial.resolve(device=weight.device.type)`.

        Never pass a configuration value: the judge compares this with what was requested.
        """
        given = {"device": device, "dtype": dtype, "backend": backend, "steps": steps}
        self._report(Resolved({name: _plain(value) for name, value in given.items() if value is not None}))

    def search(
        self,
        cases: SearchStrategy[Any],
        check: Callable[[Any], Mapping[str, Any]],
        *,
        examples: int,
        first: Iterable[Mapping[str, Any]] = (),
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
        refuting = search.explore(cases, first, examples)
        tried = search.results
        lists: dict[str, list[Any]] = {}
        for result in tried:
            for name, value in result.measured.items():
                lists.setdefault(name, []).append(value)
        self.measure(**lists)
        simplest = search.shrink(cases, refuting, examples) if refuting else None
        for one in (simplest, *search.results):
            if one is not None and one.fault is not None:
                self._fault = one.fault
                self._enter(Phase.SUBJECT)
                raise one.fault
        return len(tried)

    def _attempt(
        self, check: Callable[[Any], Mapping[str, Any]], case: Mapping[str, Any]
    ) -> Mapping[str, Any] | SubjectFault:
        """What `check` measured on a case, or the subject's fault, which does not end the trial before the search."""
        measured: Mapping[str, Any] = {}
        try:
            measured = strictjson.untag_nonfinite({name: _plain(value) for name, value in check(case).items()})
        except SubjectFault:
            self._enter(Phase.FALSIFIER)
        fault, self._fault = self._fault, None
        if fault is None or isinstance(fault, SubjectFault):
            return fault or measured
        raise fault

    @contextmanager
    def subject_fault(self) -> Iterator[None]:
        """Everything the subject does goes inside. An exception, a crash or a hang in here is the subject's defect.

        The trial ends there, and the built-in clause `subject.completes` fails, also where the falsifier catches what
        is raised here. `NotMeasured` and the falsifier's own mistakes in measuring pass through.
        """
        before = self._enter(Phase.SUBJECT)
        try:
            yield
        except (*_NOT_THE_SUBJECTS, SubjectFault, GeneratorExit):
            raise
        except BaseException as error:  # asyncio.CancelledError, SystemExit and whatever else a subject may raise
            self._fault = self._fault or SubjectFault(described(error))
            raise self._fault from error
        self._enter(before)

    @contextmanager
    def falsifier_fault(self) -> Iterator[None]:
        """For code of the falsifier that the subject calls back, such as a listener to its steps.

        Its faults are the falsifier's, also where the subject catches them.
        """
        before = self._enter(Phase.FALSIFIER)
        try:
            yield
        except SubjectFault:
            raise
        except _NOT_THE_SUBJECTS as error:
            self._fault = self._fault or error
            raise
        except Exception as error:
            self._fault = self._fault or FalsifierFault(described(error))
            raise self._fault from error
        self._enter(before)

    @contextmanager
    def where_shown(self, *names: str) -> Iterator[None]:
        """For a look that some subjects cannot grant: what cannot be seen is left unmeasured, and the trial goes on.

        `NotShown` ends the block and nothing else. The clauses of what was not measured are NOT_MEASURED then, and the
        trial ends with the first such reason, however well the rest came out.

        Args:
            names: the measurements that the look is for; their clauses tell the reason where they were not made.

        Raises:
            UndeclaredMeasurement: as `measure`.
        """
        self._declared_all(names)
        before = self._phase
        try:
            yield
        except NotShown as reason:
            self._not_shown = self._not_shown or reason
            if names:
                self._report(Unseen(dict.fromkeys(names, str(reason))))
            if self._phase != before:
                self._enter(before)

    def finish(self) -> None:
        """The worker calls this when the falsifier has ended: a fault that somebody swallowed on the way still counts.

        Raises:
            SubjectFault, FalsifierFault, NotMeasured, ValueError: the first fault.
        """
        if self._fault is not None:
            raise self._fault

    def tell_what_was_hidden(self) -> None:
        """The worker calls this when the falsifier has ended well: what it was not shown still counts.

        Raises:
            NotShown: the first look that was denied.
        """
        if self._not_shown is not None:
            raise self._not_shown

    def _declared_all(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._declared:
                known = ", ".join(sorted(self._declared))
                raise UndeclaredMeasurement(f"{name!r} is not declared in the contract; its observation has {known}")

    def _enter(self, phase: Phase) -> Phase:
        """Say whose code runs from now on; whose it was."""
        before, self._phase = self._phase, phase
        self._report(Entered(phase))
        return before

    def build(self, factory: Callable[[Setting], S]) -> None:
        """Build the subject; the worker calls this once, before the falsifier."""
        with self.subject_fault():
            self._subject = factory(self.setting)


def described(error: BaseException) -> str:
    """An exception in a line or more, also where its own text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__}, whose text raises {type(another).__name__}"


def _number(value: Any) -> Any:
    plain = _plain(value)
    if (
        plain is None
        or isinstance(plain, (bool, int, float))
        or (isinstance(plain, dict) and strictjson.is_tagged(plain))
    ):
        return plain
    raise TypeError(f"a value of a step must be a number, not {type(value).__name__}")


def _plain(value: Any) -> Any:
    """A measurement as JSON, non-finite numbers tagged."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        # An integer that no double can hold would not survive a JSON file.
        return (
            int(value)
            if abs(value) < 1 << 1023
            else strictjson.tag_nonfinite(float("inf") if value > 0 else float("-inf"))
        )
    if isinstance(value, float):
        return strictjson.tag_nonfinite(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    raise TypeError(f"a measurement must be a number, text, list or map, not {type(value).__name__}")

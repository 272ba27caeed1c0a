"""`pytest --claims`: contracts as test files, with one item each. Loaded only with that option."""

from __future__ import annotations

import faulthandler
import fnmatch
import os
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import pytest

from harness.base.plugins import PluginError
from harness.base.shortening import near_path
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.contract.claim_folder import claim_of
from harness.contract.project import Project, ProjectError
from harness.machine.host import Host, probe
from harness.pytest_plugin.tied_tests import CLAIM
from harness.report.contract_file import ContractFile
from harness.report.escaping import printable
from harness.report.messages.qualifiers import refutation_text
from harness.report.messages.run_facts import facts
from harness.report.terminal.printing import lines_of
from harness.report.terminal.run_lines import Lines
from harness.report.terminal.run_text import claim_lines, qualities, short_reason
from harness.running.events import SUBJECT, ClaimFinished, Event, TrialFinished
from harness.running.in_process import default_subjects, perform
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest

__all__ = ["Claims"]

_VERDICT = "verdict"
"""The property of a report with the claim's verdict."""
_ORDER = (Verdict.FAIL, Verdict.VOID, Verdict.NOT_MEASURED, Verdict.PASS)


@final
@dataclass(eq=False)  # pytest keeps its plugins in sets
class Claims:
    """The plugin of one session: it collects, runs and reports claims."""

    project: Project
    request: RunRequest
    """The request, without contracts."""
    strict: bool
    """Whether NOT_MEASURED fails."""

    @classmethod
    def of(cls, config: pytest.Config) -> Self:
        """Create the plugin from the options. Sets `config.args` to the paths of the contracts.

        Raises:
            UsageError: an option, a path or an id is wrong.
        """
        evidence = config.getoption("claims_evidence")
        try:
            request = RunRequest(
                profile=config.getoption("claims_profile"),
                device=config.getoption("claims_device"),
                mutants=not config.getoption("claims_no_mutants"),
                jobs=_jobs(config),
                evidence=None if evidence is None else config.invocation_params.dir / evidence,
            )
            project = Project.find(config.invocation_params.dir)
            named = config.args if config.args_source is config.ArgsSource.ARGS else []
            config.args[:] = _paths(named, project, config.invocation_params.dir)
            config.args_source = config.ArgsSource.ARGS
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
        return cls(project, request, config.getoption("claims_strict"))

    @cached_property
    def host(self) -> Host:
        """The properties of this machine, read once."""
        return probe(self.project.root)

    @cached_property
    def _files(self) -> frozenset[Path]:
        return frozenset(Path(os.path.realpath(path)) for path in self.project.known())

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.File | None:
        """Collect a contract of the project as a test file."""
        if file_path.suffix != ".json" or Path(os.path.realpath(file_path)) not in self._files:
            return None
        return _ContractFile.from_parent(parent, path=file_path, claims=self)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give a skipped claim the line of its contract. A VOID claim is an error: pytest calls a failed setup so."""
        report = yield
        if isinstance(item, _Claim):
            if isinstance(report.longrepr, tuple):
                path, line, _ = item.reportinfo()
                report.longrepr = (os.fspath(path), line + 1, report.longrepr[2])
            if call.when == "call" and item.seconds is not None:
                report.duration = item.seconds  # without the wait for a device
            if call.excinfo is not None and isinstance(call.excinfo.value, _VoidError):
                report.when = "setup"
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each claim that ran, and below it the tests that are tied to it."""
        if terminalreporter.verbosity < -1:
            return
        lines = list(_summary(terminalreporter.stats))
        if lines:
            terminalreporter.section("claims")
            for line in lines:
                terminalreporter.line(line)


def _jobs(config: pytest.Config) -> int | None:
    """Return the number of parallel trials. Workers of xdist share the CPUs."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    return None if workers == 1 else max(1, len(os.sched_getaffinity(0)) // workers)


def _paths(named: list[str], project: Project, here: Path) -> list[str]:
    """Return the paths to collect: those that are named, and the contracts of claims that are named by id.

    Without a name, these are the contracts of the project. Installed claims can be named.

    Raises:
        ProjectError: there is no such claim, or no contract at all.
    """
    if not named and not project.files():
        raise ProjectError(f"there is no contract under {project.contracts}; `harness new` makes one")
    if not named:
        return [str(project.contracts)]
    known = project.known()
    paths: list[str] = []
    for name in named:
        chosen = [str(path) for path in known if fnmatch.fnmatchcase(claim_of(path), name)]
        if chosen and not (here / name).exists():
            paths += chosen
        elif re.fullmatch(r"F-[^/:.]+", name, re.IGNORECASE) and not (here / name).exists():
            project.contract(name)  # refuses it, and suggests the nearest
        else:
            paths.append(name)
    return paths


class _ContractFile(pytest.File):
    """One contract."""

    def __init__(self, *, claims: Claims, **rest: Any) -> None:
        super().__init__(**rest)
        self._claims = claims

    def collect(self) -> Iterator[_Claim]:
        """Yield its claim.

        Raises:
            CollectError: the contract or the subject that the settings name is refused, or its claim has another one.
        """
        try:
            contract = self._claims.project.contract(claim_of(self.path))
            subjects = default_subjects([contract], self._claims.project)
        except (ValueError, PluginError) as error:
            raise self.CollectError(str(error)) from error
        request = replace(self._claims.request, contracts=(contract,), subjects=subjects)
        yield _Claim.from_parent(self, name=contract.id, contract=contract, request=request, claims=self._claims)


class _Claim(pytest.Item):
    """One claim. Its test is a run of the claim: trials of the subject and of the mutants, sealed as evidence."""

    def __init__(self, *, contract: Contract, request: RunRequest, claims: Claims, **rest: Any) -> None:
        super().__init__(**rest)
        self._contract = contract
        self._claims = claims
        self._place = ContractFile.of(contract)
        self.seconds: float | None = None
        """The duration of the claim, once it has run."""
        plan = make_plan(contract, claims.host, request)
        for name in (
            f"issue_{contract.issue}",
            f"spec_{contract.spec}",
            f"device_{_device(plan)}",
            f"profile_{plan.profile.name}",
        ):
            self.config.addinivalue_line("markers", f"{name}: of claims")  # else --strict-markers refuses it
            self.add_marker(name)
        self._request = request

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the line of the claim's id in the contract, counted from 0."""
        return self.path, self._place.claim() - 1, self.name

    def runtest(self) -> None:
        """Run the claim and seal its evidence. The verdict becomes the outcome."""
        faulthandler.cancel_dump_traceback_later()  # a claim has limits of its own
        tracebacks: list[str] = []

        def keep(event: Event) -> None:
            if isinstance(event, TrialFinished) and event.trial == SUBJECT:
                tracebacks.extend(event.traceback.splitlines())

        live = self.config.getoption("capture") == "no" and not hasattr(self.config, "workerinput")
        lines = Lines(lambda line: print(printable(line[0]), flush=True))
        watching = (keep, lines) if live else (keep,)
        finished, claims = perform(self._claims.project, self._request, watching, self._claims.host)
        if not claims:
            pytest.exit(f"interrupted before {self.name} had measured anything", pytest.ExitCode.INTERRUPTED)
        (done,) = claims
        self.user_properties += _properties(done)
        self.seconds = done.record.seconds
        refutation = done.record.refutation(self._contract)
        if finished.interrupted:
            pytest.exit(
                f"interrupted; what {self.name} measured is in {done.bundle and near_path(done.bundle)}",
                pytest.ExitCode.INTERRUPTED,
            )
        clauses = [
            text
            for text, _ in lines_of(claim_lines(done, contract=self._contract, verbose=self.config.get_verbosity() > 0))
        ]
        verdict = done.record.verdict
        known = refutation_text(refutation, done.record.result) if refutation is not None else ""
        reason = printable(": ".join(filter(None, (verdict, known, short_reason(done.record)))))
        if refutation is not None and refutation.expects(done.record.result):
            pytest.xfail(reason)
        if verdict is Verdict.NOT_MEASURED and not self._claims.strict:
            pytest.skip(reason)
        if verdict is not Verdict.PASS or refutation is not None:
            report = [done.record.claim, "", *clauses, *(f"  {line}" for line in tracebacks)]
            raise (_VoidError if verdict is Verdict.VOID else _FailedError)(
                reason, self._place.line_of(done.record), report
            )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The clauses and the evidence of a claim that did not pass; the traceback of anything else."""
        if not isinstance(excinfo.value, _FailedError):
            return super().repr_failure(excinfo, style)
        text = excinfo.getrepr(style="value")
        if text.reprcrash is not None:  # the place that editors and the short summary name: that of the clause
            text.reprcrash.path, text.reprcrash.lineno = os.fspath(self.path), excinfo.value.line
            text.reprcrash.message = excinfo.value.reason
        return text


class _FailedError(Exception):
    """A claim did not pass. The text is what pytest prints.

    Attributes:
        line: the line of the contract that states the clause that failed.
    """

    def __init__(self, reason: str, line: int, lines: list[str]) -> None:
        super().__init__("\n".join(map(printable, lines)))
        self.reason, self.line = reason, line


class _VoidError(_FailedError):
    """The subject passed, but so did a mutant."""


def _device(plan: Plan) -> str:
    """Return the device that the plan uses, or needs if it is not here."""
    return "cuda" if plan.profile.requires.get("device") == "cuda" else plan.device.type


def _properties(done: ClaimFinished) -> Iterator[tuple[str, str]]:
    """Yield the properties of a claim's report. JUnit contains them as properties of the test."""
    properties = {CLAIM: done.record.id, **facts(done.record), "qualities": qualities(done.record)}
    properties["reason"] = short_reason(done.record)
    if done.bundle is not None:
        properties["evidence"] = str(done.bundle)
    elif done.unsealed:
        properties["unsealed"] = done.unsealed
    for name, value in properties.items():
        yield name, printable(value)


def _summary(stats: dict[str, list[Any]]) -> Iterator[str]:
    """Yield the lines of the summary, from the properties of reports, which come from xdist's workers too."""
    ran: dict[str, dict[str, str]] = {}
    tied: dict[str, list[str]] = {}
    for outcome, reports in stats.items():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if _VERDICT in properties:
                ran[properties[CLAIM]] = properties
            elif outcome and CLAIM in properties:
                for name in [value for key, value in report.user_properties if key == CLAIM]:
                    tied.setdefault(name, []).append(outcome)
    for name in (
        *sorted(ran, key=lambda claim: (_ORDER.index(Verdict(ran[claim][_VERDICT])), claim)),
        *sorted({*tied} - {*ran}),
    ):
        if name in ran:
            result = ran[name]
            yield f"{result[_VERDICT]:<12}  {name}  {result['qualities']}"
            if result["reason"]:
                yield f"{'':<14}{result['reason']}"
            missing = ": ".join(filter(None, ("no bundle was written", result.get("unsealed"))))
            yield f"{'':<14}{near_path(Path(result['evidence'])) if 'evidence' in result else missing}"
        else:
            yield f"{'not run':<12}  {name}"
        if name in tied:
            outcomes = sorted(dict.fromkeys(tied[name]), key=lambda outcome: outcome not in ("failed", "error"))
            counted = ", ".join(f"{tied[name].count(outcome)} {outcome}" for outcome in outcomes)
            yield f"{'':<14}tests: {counted}"

"""The process of one trial, a child of the supervisor. It runs the falsifier and reports its messages."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.authoring.faults import FalsifierFault, MeasurementTooLarge, NotMeasured, SubjectFault
from harness.authoring.reports import Entered, Logged, Stepped, Used
from harness.authoring.toolkit_log import log_to
from harness.authoring.trial import Case, Search
from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.contract.entry_point import resolve_own
from harness.contract.project_importer import install, plant
from harness.execution import frameworks
from harness.execution.authentication import OVERHEAD, signer
from harness.execution.blame import machine_fault, placed
from harness.execution.isolation import IsolatedSubject
from harness.execution.messages import LARGEST_MESSAGE, Ended, Message, Read, Start, encode
from harness.execution.news import News
from harness.execution.sources import Sources
from harness.execution.worker_trial import WorkerTrial
from harness.judging.observation import EndingKind

__all__ = ["run_trial"]

_LONGEST_TEXT = 200_000
"""Maximum characters of a reason or traceback. Texts are cut after their secrets are masked."""


def run_trial(start: Start, sources: Sources, messages: int, key: int, may_exit: int) -> None:
    """Run a trial in this process.

    Args:
        sources: the sources that the fork server has used.
        messages: the pipe for messages.
        key: the pipe with the key for messages.
        may_exit: the pipe that becomes readable when the process may exit.
    """
    if start.patches:
        plant(start.patches)
    # The subject's process does not get the key.
    process: IsolatedSubject | None = None
    if start.isolated:
        process = resolve_own(start.isolated)(start, sources, (messages, key, may_exit))
    tell = _reporter(messages, key)  # while no code of the trial has run
    os.environ.update(start.environment)
    if start.search:
        os.chdir(start.root)
        packages = install([*map(Path, start.search)])
        packages.update(entry.partition(".")[0] for entry in (start.falsifier, start.subject))
    news = News(start, sources)
    report = _with_news(tell, sources, news, process, start)
    log_to(report)
    trial = WorkerTrial(
        start.setting, start.artifacts, frozenset(start.declared), report, lambda attempt: _search(start, attempt)
    )
    with contextlib.ExitStack() as around:
        for tool, argument in start.around.items():
            around.enter_context(resolve_own(tool)(start, argument))
        ended = _ended(lambda: _falsify(trial, start, process, news, sources), start.memory_gib, sources)
    # A subject outside this process uses another allocator.
    peak_bytes = frameworks.allocator_peak_bytes() if trial.is_in_process else None
    peak = peak_bytes if process is None else process.end()
    report(replace(ended, allocator_peak_bytes=peak))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the subject may have closed or replaced it
            stream.flush()
    os.read(may_exit, 1)  # the harness reads the driver's process list once more before this process ends


def _search(start: Start, attempt: Callable[[Case], JsonObject | SubjectFault]) -> Search:
    claim = strictjson.load(start.claim)
    if not claim["engine"]:
        raise NotMeasured("nothing that is installed searches for a case; install the harness again")
    search: Search = resolve_own(claim["engine"])(claim, start.setting, attempt, start.artifacts)
    return search


def _falsify(trial: WorkerTrial, start: Start, process: IsolatedSubject | None, news: News, sources: Sources) -> None:
    falsify = resolve_own(start.falsifier)
    subject = _loaded(start.subject, sources) if process is None else process.loaded(falsify)
    if start.setting.device != "cpu" and frameworks.cuda_is_spoilt():
        raise RuntimeError("an import used CUDA, which cannot be forked then; move that into the subject")
    frameworks.prepare(start.setting.seed, start.threads)
    news.listen()
    trial.run(falsify, subject)


def _loaded(subject: str, sources: Sources) -> Any:
    """Import the subject's class. A failed import makes the trial NOT_MEASURED."""
    try:
        return resolve_own(subject)
    except BaseException as error:  # a module can raise anything on import
        raise NotMeasured(f"the subject could not be loaded: {placed(error, sources)}") from error


def _ended(work: Callable[[], None], memory_gib: float, sources: Sources) -> Ended:
    """Run `work` and return how it ended. A subject that fails because of the machine is not at fault."""
    try:
        work()
    except NotMeasured as error:
        stack = traceback.format_exc() if error.__cause__ else None
        return _ended_as(EndingKind.NOT_MEASURED, str(error) or "the falsifier gave no reason", stack)
    except SubjectFault as error:
        raised = error.__cause__ or error
        obstacle = machine_fault(error.__cause__, memory_gib)
        reason = placed(raised, sources)
        if obstacle:
            return _ended_as(EndingKind.NOT_MEASURED, f"{obstacle}: {reason}", traceback.format_exc())
        return _ended_as(EndingKind.SUBJECT_FAULT, reason, traceback.format_exc())
    except BaseException as error:  # also sys.exit() of a falsifier, which is a fault
        raised = error.__cause__ if isinstance(error, FalsifierFault) and error.__cause__ else error
        return _ended_as(EndingKind.FALSIFIER_FAULT, placed(raised, sources), traceback.format_exc())
    return _ended_as(EndingKind.COMPLETED, "")


def _ended_as(kind: EndingKind, reason: str, stack: str | None = None) -> Ended:
    return Ended(kind, reason[:_LONGEST_TEXT], stack and stack[-_LONGEST_TEXT:], allocator_peak_bytes=None)


def _with_news(
    report: Callable[[Message], None], sources: Sources, news: News, process: IsolatedSubject | None, start: Start
) -> Callable[[Message], None]:
    """Wrap `report` so that it first reports sources, models and data files that are new since the last message.

    Sources that a falsifier imports or reads while it runs belong to the evidence, even if the trial then dies. If the
    claim measures time, models and data files are reported only when the falsifier measures, not between steps.
    """

    def tell(message: Message) -> None:
        if isinstance(message, Used):
            sources.add(list(message.names))
        if new_sources := sources.news():
            report(Read(new_sources))
        if not (start.is_timed and isinstance(message, Stepped | Entered)):
            for text, topic in (*news.lines(), *(process.lines() if process is not None else ())):
                report(Logged(text, topic))
        if not isinstance(message, Used):
            report(message)

    return tell


def _reporter(descriptor: int, key: int) -> Callable[[Message], None]:
    owner, sign = os.getpid(), signer(key)
    turn = threading.RLock()  # threads may report at the same time, and a signal can interrupt a thread that reports

    def report(message: Message) -> None:
        if os.getpid() != owner:
            return  # a fork of the subject must not report
        text = encode(message)
        if len(text) + OVERHEAD > LARGEST_MESSAGE:
            raise MeasurementTooLarge(f"{len(text)} bytes at once, of at most {LARGEST_MESSAGE}; measure less")
        with turn:
            rest = memoryview(sign(text))
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    return report

"""Runs an isolated subject in a separate process, for `harness run --isolate`.

    trial (falsifier) ──calls: JSON and bytes──▶ subject's process
           ▲───────────results, exceptions────────────┘

The trial forks this process before it reads the key of its messages, and never imports the subject's module. Calls and
results are serialized by the types of the falsifier's Protocol (`rpc.py`, `value_codec.py`), so the subject's process
can send wrong values, but no other objects. A call has the trial's working directory and the environment variables that
the falsifier changed. Changes to tensor arguments are copied back, as if the subject were not isolated. The process
shares standard output and error with the trial.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from harness.authoring.faults import NotMeasured
from harness.authoring.setting import Setting
from harness.contract.entry_point import resolve_own
from harness.execution import frameworks
from harness.execution.blame import MachineObstacle, machine_fault, placed, raised_at, set_place
from harness.execution.messages import Start
from harness.execution.news import News
from harness.execution.sources import Sources
from harness.machine.process_control import die_with_parent
from harness.tools.isolate.rpc import ChannelClosed, RpcChannel, RpcMethod, RpcProtocol, rpc_protocol
from harness.tools.isolate.value_codec import Blobs

__all__ = ["SubjectEnded", "SubjectProcess"]

_LONGEST_TEXT = 200_000
_END_SECONDS = 10.0
_MOST_LINES, _LONGEST_LINE = 1_000, 4_000
"""Maximum queued lines for the log, and maximum characters of each."""


class SubjectEnded(Exception):
    """The subject's process ended in a call, or sent no valid response. The text states which."""


class SubjectProcess:
    """The trial's side: it starts the subject's process and calls it."""

    def __init__(self, start: Start, sources: Sources, ours: Iterable[int]) -> None:
        """Fork the process.

        Args:
            sources: the trial's sources; files that the process reads are added.
            ours: descriptors of the trial, which the process closes.
        """
        self._subject, self._sources = start.subject, sources
        connection, theirs = socket.socketpair()
        self._turn = threading.Lock()  # of the falsifier's threads
        trial = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                for descriptor in (*ours, connection.detach()):
                    os.close(descriptor)
                die_with_parent(trial)
                _Server(RpcChannel(theirs), start, sources).serve()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        theirs.close()
        self._carrier = RpcChannel(connection, os.pidfd_open(self._pid))
        self._is_broken = ""
        self._lines: list[tuple[str, str]] = []

    def loaded(self, falsify: Callable[..., Any]) -> Callable[[Setting], Any]:
        """Import the subject in its process. Return a function that builds it there and returns a proxy.

        Raises:
            NotMeasured: the subject cannot be imported.
        """
        protocol = rpc_protocol(falsify)
        module = self._subject.partition(":")[0]
        if sys.modules.get(module) is not None:
            raise NotMeasured(f"the falsifier imports {module}, the module of the subject")
        sys.modules[module] = None  # type: ignore[assignment]  # no import of it succeeds here
        self._began_with = dict(os.environ)
        try:
            failed = self._ask(["load"], Blobs(), protocol)[0]
        except SubjectEnded as error:
            failed = error
        if failed:
            raise NotMeasured(f"the subject could not be loaded: {failed}")

        def build(setting: Setting) -> Any:
            self._ask(["build"], Blobs(), protocol)
            return _stand_in(protocol, self)

        return build

    def call(self, protocol: RpcProtocol, name: str, method: RpcMethod, *args: Any, **kwargs: Any) -> Any:
        """The result of a method.

        Raises:
            NotMeasured: the falsifier passed an argument that cannot be serialized.
            SubjectEnded: there is no valid response.
            Exception: the subject raised it.
        """
        blobs = Blobs()
        try:
            given = method.pack(blobs, *args, **kwargs)
        except Exception as error:
            raise NotMeasured(f"arguments of {protocol.name}.{name} cannot be carried: {error}") from error
        changed = {key: os.environ.get(key) for key in {*os.environ, *self._began_with}}
        changed = {key: value for key, value in changed.items() if value != self._began_with.get(key)}
        answer, come = self._ask(["call", name, given, os.getcwd(), changed], blobs, protocol)
        try:
            result, *changed = answer
            for place, data in changed:
                blobs.write_back(place, come[data])
            return method.result.unpack(result, come)
        except Exception as error:
            self._fail(f"the subject's process returned no result of {protocol.name}.{name}: {error}")

    def lines(self) -> list[tuple[str, str]]:
        """The lines for the log, with topics, that the process has reported since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def end(self) -> int | None:
        """End the process. Returns the peak of its GPU allocator in bytes; None if it is unknown."""
        with suppress(Exception):
            self._carrier.seconds = _END_SECONDS
            peak = self._ask(["end"], Blobs(), None)[0]
            return peak if type(peak) is int and peak >= 0 else None
        return None

    def _ask(self, document: Any, blobs: Blobs, protocol: RpcProtocol | None) -> tuple[Any, Sequence[Any]]:
        with self._turn:
            if self._is_broken:
                raise SubjectEnded(self._is_broken)
            self._is_broken = "an earlier call to the subject's process was cut short"
            try:
                self._carrier.send(document, blobs)
                ((kind, *rest), read, lines), come = self._carrier.receive()
                self._sources.merge(read)
                self._lines = [*self._lines, *_lines_of(lines)][:_MOST_LINES]
                if kind == "returned":
                    (result,) = rest
                else:
                    names, text, trace, obstacle, place = rest
                    error = (protocol or _NO_PROTOCOL).exception(names, str(text))
                    set_place(error, str(place)[:_LONGEST_TEXT])
                    error.add_note(f"in the subject's process:\n{trace}")
                    error.__cause__ = MachineObstacle(str(obstacle)) if obstacle else None
            except (ChannelClosed, ConnectionError):
                self._fail(self._obituary())
            except _NO_ANSWER as wrong:
                self._fail(f"the subject's process gave no valid answer: {wrong}"[:1000])
            self._is_broken = ""
            if kind == "returned":
                return result, come
        raise error

    def _fail(self, why: str) -> NoReturn:
        self._is_broken = why
        raise SubjectEnded(why)

    def _obituary(self) -> str:
        """Describe how the process ended. Raises NotMeasured if the subject did not cause it."""
        try:
            status = os.waitpid(self._pid, 0)[1]
        except ChildProcessError:
            return "the subject's process ended"
        if not os.WIFSIGNALED(status):
            return f"the subject's process exited with status {os.WEXITSTATUS(status)} before its end"
        ended = f"the subject's process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WTERMSIG(status) == signal.SIGKILL:
            # Only the kernel or an administrator sends SIGKILL. It is not the subject's fault.
            raise NotMeasured(f"{ended} (the kernel does that when memory runs out)")
        return ended


def _lines_of(pairs: Any) -> list[tuple[str, str]]:
    """Return the log lines that the process sent, marked as the subject's.

    Raises:
        ValueError, TypeError: they are not texts with topics.
    """
    log_lines = [(text, topic) for text, topic in pairs]
    if not all(type(text_or_topic) is str for pair in log_lines for text_or_topic in pair):
        raise TypeError("lines for the log must be texts with topics")
    return [(f"in the subject's process: {text[:_LONGEST_LINE]}", f"there {topic[:80]}") for text, topic in log_lines]


_NO_ANSWER = (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError, MemoryError)
"""The exceptions that reading raises for a malformed response."""
_NO_PROTOCOL = RpcProtocol("", {}, {})


def _stand_in(protocol: RpcProtocol, process: SubjectProcess) -> Any:
    """A proxy with the Protocol's methods, which calls the process."""

    def method(name: str) -> Callable[..., Any]:
        return lambda self, *args, **kwargs: process.call(protocol, name, protocol.methods[name], *args, **kwargs)

    def missing(self: Any, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotMeasured(f"an isolated subject has the methods of {protocol.name} alone, and {name} is none of them")

    def again(self: Any, *_: Any, **__: Any) -> None:
        raise NotMeasured("the falsifier builds further subjects, and an isolated one is built once")

    members = {name: method(name) for name in protocol.methods}
    kind = type(f"Isolated{protocol.name}", (), {**members, "__init__": again, "__getattr__": missing})
    return object.__new__(kind)


@contextmanager
def _environment(changed: Mapping[str, str | None]) -> Iterator[None]:
    """Set these environment variables in the block; None removes a variable."""
    before = {key: os.environ.get(key) for key in changed}
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for key, value in variables.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


class _Server:
    """The subject's side: it handles calls until the trial ends it."""

    def __init__(self, carrier: RpcChannel, start: Start, sources: Sources) -> None:
        self._carrier, self._start, self._sources = carrier, start, sources
        self._news = News(start, sources)

    def serve(self) -> NoReturn:
        owner = os.getpid()
        while True:
            try:
                request, given = self._carrier.receive()
            except ChannelClosed:
                os._exit(0)  # the trial has ended
            blobs = Blobs()
            try:
                answer = ["returned", self._done(request, given, blobs)]
            except BaseException as error:
                answer = ["raised", *self._raised(error)]
                blobs = Blobs()
            if os.getpid() != owner:
                os._exit(1)  # a fork of the subject that returned
            self._carrier.send([answer, self._sources.news(), [*self._news.lines()]], blobs)
            if request[0] == "end":
                for stream in (sys.stdout, sys.stderr):
                    with suppress(Exception):  # the subject may have closed or replaced it
                        stream.flush()
                os._exit(0)

    def _done(self, request: Sequence[Any], given: Sequence[Any], blobs: Blobs) -> Any:
        match request:
            case ["load"]:
                os.environ.update(self._start.environment)
                self._protocol = rpc_protocol(resolve_own(self._start.falsifier))
                try:
                    self._kind = resolve_own(self._start.subject)
                except BaseException as error:
                    traceback.print_exc()
                    return placed(error, self._sources)[:_LONGEST_TEXT]
                frameworks.prepare(self._start.setting.seed, self._start.threads)
                self._news.listen()
            case ["build"]:
                self._subject = self._kind(self._start.setting)
            case ["call", name, arguments, folder, changed]:
                method = self._protocol.methods[name]
                function = self._subject if name == "__call__" else getattr(self._subject, name)
                before = [bytes(blob) for blob in given]
                bound = method.unpack(arguments, given)
                with contextlib.chdir(folder), _environment(changed):
                    result = method.result.pack(function(*bound.args, **bound.kwargs), blobs)
                after = Blobs()
                method.pack(after, *bound.args, **bound.kwargs)
                written = after.changes(before)
                places = [[place, len(blobs) + number] for number, place in enumerate(written)]
                blobs += written.values()
                return [result, *places]
            case ["end"]:
                return frameworks.allocator_peak_bytes()
        return None

    def _raised(self, error: BaseException) -> list[Any]:
        try:
            text = str(error)
        except Exception as another:
            text = f"its text raises {type(another).__name__}"
        trace = "".join(traceback.format_exception(error))
        names = [base.__name__ for base in type(error).__mro__]
        obstacle = machine_fault(error, self._start.memory_gib)
        place = raised_at(error, self._sources)
        return [names, text[:_LONGEST_TEXT], trace[-_LONGEST_TEXT:], obstacle, place]

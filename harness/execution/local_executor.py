"""Runs trials on this machine, each in its own process and session, with a time limit."""

from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from harness.authoring.setting import Setting
from harness.base import strictjson
from harness.base.beneath import Beneath
from harness.base.plugins import plugins
from harness.base.redaction import Redactor
from harness.base.removal import remove
from harness.base.shortening import cut, first
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import SearchEnd
from harness.contract import Contract
from harness.contract.imports import imported_libraries
from harness.contract.project import Project
from harness.execution.executor import StepListener, TrialRequest, TrialResult
from harness.execution.fork_server import ForkServer, ForkServerError
from harness.execution.fork_servers import ForkServers
from harness.execution.isolation import isolation
from harness.execution.messages import Imports, Start
from harness.execution.progress import Progress
from harness.execution.sources import changed
from harness.execution.trial_log import TrialLog, WorkspaceFiles, short
from harness.execution.trial_pipes import trial_pipes
from harness.execution.watch import Watch
from harness.judging.judge import refutes, requested
from harness.judging.observation import Ending, EndingKind
from harness.machine.process_control import adopting
from harness.machine.telemetry import Sampler

__all__ = ["LocalExecutor", "LocalExecutors"]

_Shared = tuple[tuple[Path, ...], tuple[str, ...]]
"""Claims share fork servers that import from the same folders, and that get the same variables. Installed claims have
folders of their own."""
_MODULES_AT_ONCE = 500
"""Maximum names in one request to the fork server, whose requests are bounded in size."""
_COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Subfolders of the cache by the variables for the caches of torch.compile and Triton.

Inductor's default is in the temporary folder, where nothing removes it.
"""
_LONGEST_REASON, _LONGEST_TRACEBACK = 2_000, 20_000
"""Maximum characters of a text of an ending."""


class LocalExecutor:
    """Runs the trials of one contract in forks of a server that has imported its code."""

    def __init__(
        self,
        project: Project,
        contract: Contract,
        cache: Path,
        remark: Callable[[str], None] = lambda text: None,
        isolated: bool = False,
        start: Callable[[], ForkServer] | None = None,
        further: Sequence[str] = (),
    ) -> None:
        """Args:
        isolated: whether each subject runs in a process apart from its falsifier.
        remark: called with a text for each file of the trials that could not be removed.
        start: starts the fork server; None for one without imports.
        further: more entry points for the fork server to import.
        """
        self._project, self._contract, self._cache, self._further = project, contract, cache, further
        self._remark, self._isolated = remark, isolated
        self._start = start or partial(_first_server, project, contract.path)
        self._interrupted = threading.Event()
        self._redactor = Redactor()
        self._used: dict[str, str] = {}
        """SHA-256 of the sources that the fork server and the trials have used, by name."""
        self._imported = ""
        """What was imported before the trials, as a line for their logs."""
        self._lost: ForkServerError | None = None
        """Why there is no fork server; None if there is one."""

    def __enter__(self) -> LocalExecutor:
        self._server = self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        for left in self._server.close():
            self._remark(f"a file of a trial could not be removed: {left}")

    def imports(self) -> Imports:
        """Import the contract's entry points into the fork server, except isolated subjects."""
        entries = (*_entry_points(self._contract, self._isolated), *self._further)
        modules = list(dict.fromkeys(entry.partition(":")[0] for entry in entries))
        began = time.monotonic()
        try:
            imports = self._server.import_modules(modules)
            self._used.update(imports.sources)
            self._imported = f"before: {', '.join(modules)} imported in {time.monotonic() - began:.3f} s"
            return imports
        except ForkServerError as error:
            self._lost = error
            return Imports({"fork server": str(error)}, {})

    def warm(self, modules: Sequence[str]) -> None:
        """Import libraries into the fork server, for trials that import the project's code from a copy."""
        try:
            for first in range(0, len(modules), _MODULES_AT_ONCE):
                self._server.import_modules(modules[first : first + _MODULES_AT_ONCE])
        except ForkServerError as error:
            self._lost = error

    def renew(self) -> None:
        """Replace the fork server by one without imports. No trial may be running."""
        self._server.close()
        self._lost = None
        self._server = self._start()

    def interrupt(self) -> None:
        """End every running trial. Its watcher sees this at its next tick."""
        self._interrupted.set()

    def run(self, request: TrialRequest, on_step: StepListener) -> TrialResult:
        """Run one trial and collect its messages, logs and files."""
        place = self._server.place / uuid.uuid4().hex[:12]
        folder = place.path
        masked = lru_cache(maxsize=256)(self._redactor.mask)  # every step has the same few names
        sampler = Sampler(request.gpu)
        started = time.monotonic()
        log, files = TrialLog(started, masked), WorkspaceFiles(folder / "workspace")
        profile = request.contract.profiles[request.profile]
        progress = Progress(started, request.seconds, profile.limit_is_claimed)
        mask = self._redactor.mask_json

        def is_refuted(measurements: JsonObject) -> bool:
            is_enough = bool(request.until_violated) or request.search_end is SearchEnd.REFUTED
            return is_enough and refutes(
                request.contract, request.observation(mask(measurements)), request.until_violated
            )

        timed = profile.exclusive
        watch = Watch(progress, sampler, on_step, self._interrupted, masked, log, files, timed, is_refuted)
        self._introduce(request, log)
        try:
            for needed in (place / "workspace", place / "artifacts", Beneath(request.cache or self._cache)):
                needed.make_folder()
            strictjson.dump(_claim(request, started + request.seconds), folder / "claim.json")
            if self._lost is not None:
                raise self._lost
            with trial_pipes(watch.keys) as (own_ends, trial_ends):
                self._server.start(self._request(request, folder), trial_ends)
                for descriptor in trial_ends:
                    os.close(descriptor)
                trial_ends.clear()
                watch.follow(*own_ends)
            if watch.ending is not None and watch.ending.kind is EndingKind.COMPLETED and self._server.obstacle:
                watch.ending = Ending(EndingKind.LOST, watch.phase, self._server.obstacle)
        except (ForkServerError, OSError) as error:  # no descriptors or no space: the machine's fault
            watch.ending = Ending(EndingKind.LOST, watch.phase, _start_error(error, folder))
        finally:
            telemetry = watch.sampler.stop()
        for line in files.kept():
            log.write(line)
        for scratch in ("workspace", "claim.json"):  # the checkpoints of twenty trials would fill a disk
            remove(place / scratch)
        ending = watch.ending or watch.vanished()
        if names := self._changed(watch.sources, request.root):
            ending = Ending(EndingKind.CHANGED, ending.phase, first(names, 3))
        observed = request.observation(
            mask(watch.measurements),
            resolved=mask(watch.resolved),
            residency=watch.residency(telemetry, request.gpu),
            ending=replace(
                ending,
                reason=cut(mask(ending.reason), _LONGEST_REASON),
                traceback=mask(ending.traceback or "")[-_LONGEST_TRACEBACK:] or None,
            ),
            unseen={name: cut(str(why), _LONGEST_REASON) for name, why in mask(watch.unseen).items()},
        )
        settings = requested(request.contract, request.profile, dict(request.parameters), request.device.type)
        log.compare(settings, observed.resolved)
        log.end(observed.ending)
        return TrialResult(
            observed,
            watch.steps.close(),
            telemetry,
            log.close(self._redactor),
            watch.stdout.close(self._redactor),
            watch.stderr.close(self._redactor),
            place / "artifacts",
            watch.seconds,
            watch.sources,
        )

    def _introduce(self, request: TrialRequest, log: TrialLog) -> None:
        """Write the trial's request to its log."""
        contract = request.contract
        where = request.device.name if request.gpu is None else f"{request.device.name} ({request.gpu.key})"
        log.write(f"{contract.id}: {contract.falsifier} examines {request.subject}, profile {request.profile}")
        log.write(f"parameters {short(request.parameters)}")
        log.write(
            f"device {request.device.type}, {where}; seed {request.seed}; {request.threads} threads; "
            f"limit {request.seconds:g} s" + ("; the subject has a process of its own" if self._isolated else "")
        )
        if request.case is not None:
            log.write(f"only this case: {short(request.case)}")
        if self._imported and request.root is None:
            log.write(self._imported)

    def _changed(self, sources: Mapping[str, str], copy: Path | None) -> list[str]:
        """Return the sources that changed since this trial or an earlier one of the claim used them.

        Args:
            copy: the copy of the project that the trial imported, with a planted defect; None for the project itself.
        """
        if copy is not None:
            return changed(sources, copy)
        for name, digest in sources.items():
            self._used.setdefault(name, digest)
        mixed = [name for name, digest in sources.items() if self._used[name] != digest]
        return sorted({*mixed, *changed(self._used, self._project.root)})

    def _request(self, request: TrialRequest, folder: Path) -> Start:
        # The trial sees the leased GPU as cuda:0. Without a lease on a GPU it sees none.
        gpus = () if request.gpu is None else (request.gpu, *request.others)
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.key for gpu in gpus)}
        root, cache = request.root or self._project.root, request.cache or self._cache
        caches = {name: str(cache.absolute() / folder) for name, folder in _COMPILED.items() if name not in os.environ}
        return Start(
            root=root,
            falsifier=request.contract.falsifier,
            subject=request.subject,
            patches=request.patches,
            setting=Setting(
                parameters=dict(request.parameters),
                device="cuda:0" if request.device.is_cuda else "cpu",
                seed=request.seed,
                workspace=folder / "workspace",
                cache=cache,
            ),
            threads=request.threads,
            artifacts=folder / "artifacts",
            memory_gib=request.contract.profiles[request.profile].requires.get("memory_gib", 0.0),
            declared=tuple(sorted(request.contract.measurements)),
            claim=folder / "claim.json",
            environment=visible | caches,
            search=tuple(str(root / place.relative_to(self._project.root)) for place in self._project.search)
            if request.root is not None
            else (),
            isolated=isolation().process if self._isolated else "",
            is_timed=request.contract.profiles[request.profile].exclusive,
            around=request.around,
        )


@final
class LocalExecutors:
    """Creates the executors of a run. Claims that import the same libraries share fork servers."""

    def __init__(
        self,
        project: Project,
        contracts: Sequence[Contract],
        cache: Path,
        admits: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        isolated: bool = False,
        again: bool = False,
        further: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Args:
        contracts: the contracts of the run, with the subjects that run.
        admits: by claim, names of environment variables to pass in addition to the allowlist.
        again: whether claims run more than once.
        further: by claim, more entry points to import.
        """
        self._project, self._cache, self._isolated = project, cache, isolated
        self.remark: Callable[[str, str], None] = lambda claim, text: None
        """Called with a claim's id and a text, for each file of its trials that could not be removed."""
        self._admits, self._further = admits, further
        libraries: dict[_Shared, dict[str, frozenset[str]]] = {}
        paths: dict[_Shared, Path] = {}
        for contract in contracts:
            shared, search = self._shared(contract), project.search_of(contract.path)
            alone = len(contracts) == 1 and not again
            entries = (*_entry_points(contract, isolated), *further.get(contract.id, ()))
            imported = frozenset() if alone else imported_libraries(entries, search)
            libraries.setdefault(shared, {})[contract.id] = imported
            paths[shared] = contract.path
        self._servers = {
            shared: ForkServers(partial(_first_server, project, paths[shared], shared[1]), claims, again)
            for shared, claims in libraries.items()
        }
        self._adopting = ExitStack()
        self._adopting.enter_context(adopting())
        if len(self._servers) == 1:
            next(iter(self._servers.values())).begin()

    def __call__(self, contract: Contract) -> LocalExecutor:
        """The executor of a claim."""
        return LocalExecutor(
            self._project,
            contract,
            self._cache,
            remark=lambda text: self.remark(contract.id, text),
            isolated=self._isolated,
            start=lambda: self._servers[self._shared(contract)].start(contract.id),
            further=self._further.get(contract.id, ()),
        )

    def _shared(self, contract: Contract) -> _Shared:
        return self._project.search_of(contract.path), self._admits.get(contract.id, ())

    def close(self) -> None:
        """End the shared fork servers."""
        for servers in self._servers.values():
            servers.close()
        self._adopting.close()


def _first_server(project: Project, contract: Path, admits: Sequence[str] = ()) -> ForkServer:
    """Start a fork server for claims of this contract's project."""
    return ForkServer.started(project.root, project.search_of(contract), project.others_of(contract), admits)


def _entry_points(contract: Contract, isolated: bool) -> tuple[str, ...]:
    """Return the entry points that a fork server imports: all but isolated subjects."""
    return (contract.falsifier,) if isolated else contract.entry_points


def _start_error(error: Exception, folder: Path) -> str:
    """Describe why a trial could not be started, with a remedy if one is known."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error.filename or folder}: {error.strerror}; free some space there, or set TMPDIR to another folder"
    return str(error)


def _claim(request: TrialRequest, until: float) -> dict[str, Any]:
    """Return the input of a search (see `harness.tools.search.cases`). The trial ends at `until`, a monotonic time."""
    return {
        "contract": request.contract.document,
        "device": request.device.to_json(),
        "case": request.case,
        "end": request.search_end,
        "until_violated": request.until_violated,
        "until": until,
        "engine": _search_engine(),
    }


@cache
def _search_engine() -> str:
    """Return the entry point of the installed search engine; empty if there is none."""
    entry_points = (point for plugin in plugins("harness.search").values() for point in plugin.entry_points.values())
    return next((entry_point.value for entry_point in entry_points), "")

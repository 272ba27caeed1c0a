"""Sealing: write a `ClaimResult` as a folder. After an error there is no folder.

    sealer = Sealer(project.evidence)
    place = sealer.seal(result)     # evidence/PMAT-697/F-DISTILL-SMOKE-001/2026-11-20T201503Z-h200-3f2a9c

The folder is written under a temporary name, synced to the disk file by file, and then renamed into place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, final

from harness.base.beneath import Beneath
from harness.base.redaction import Redactor
from harness.base.regular_file import CHUNK
from harness.base.shortening import described
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.evidence import artifacts, manifest
from harness.evidence import bundle_layout as layout
from harness.evidence.atomic_dir import sync_folder, sync_tree, unfinished, write_new
from harness.evidence.trial_files import SUBJECT, json_bytes, mutant_line, sections, subject_files, trial_of
from harness.execution.executor import TrialResult
from harness.judging.record import Record

__all__ = [
    "Attest",
    "ClaimResult",
    "Environment",
    "Seal",
    "SealError",
    "Sealer",
]

Attest = Callable[[Record, str, bytes], bytes]
"""Returns an attestation, given a record, its contract's subject and a manifest (see `attestation.attest`)."""

_SUBJECT_LOG, _MUTANT_LOG = 64 << 10, 4 << 10
"""Maximum bytes of each stream of the subject's trial, and of a mutant's trial."""
_REMEDIES = {
    errno.ENOSPC: "free some space there, or name another folder with --evidence",
    errno.EDQUOT: "your quota is used up; free some space there, or name another folder with --evidence",
    errno.EFBIG: "the limit on file sizes (ulimit -f) is below that of a bundle",
    errno.EACCES: "make the folder writable, or name another with --evidence",
    errno.EPERM: "make the folder writable, or name another with --evidence",
    errno.ELOOP: "below the folder of evidence no link is followed; put a folder in its place",
    errno.ESTALE: "find what moved the folder during the run, and put it back",
    errno.EROFS: "the filesystem is mounted read-only; name another folder with --evidence",
    errno.EEXIST: "a run of this name is there already, or is just being written; run again",
    errno.ENOTDIR: "something in the way is a file; name another folder with --evidence",
}


class SealError(OSError):
    """A bundle was not written, and no part of it is left. The text names the place and the remedy."""

    elsewhere: Path | None = None
    """The same bundle in a new temporary folder; None if it could not be written there either."""


@final
class Sealer:
    """Writes bundles below one folder."""

    def __init__(self, root: Path, attest: Attest | None = None) -> None:
        """Args:
        root: the evidence folder; made if it does not exist.
        attest: signs each bundle; None leaves bundles unsigned.
        """
        self._root = root
        self._attest = attest
        self._held: int | None = None
        """A descriptor of the root, opened at the start of the run. Code under test can replace the folder later."""

    def prepare(self) -> None:
        """Check before the run that bundles can be written.

        Raises:
            SealError: files cannot be written to the folder.
        """
        if self._root.exists() and not self._root.is_dir():
            raise SealError(f"{self._root} cannot take evidence: it is a file; name a folder with --evidence")
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as probe:
                probe.write(bytes(CHUNK))
            if self._held is None:
                self._held = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._held)
        except OSError as error:
            raise _explained(self._root, "cannot take evidence", error) from error

    def seal(self, result: ClaimResult) -> Path:
        """Write the bundle of a result and return its folder.

        If the disk is full or read-only, the bundle is written to a new temporary folder, so no measurement is lost.

        Raises:
            SealError: the result cannot be written. Files that were written are removed if possible.
        """
        try:
            return self._seal_below(Beneath(self._root, held=self._held), result)
        except SealError as error:
            if isinstance(error.__cause__, OSError):
                error.elsewhere = self._seal_elsewhere(result)
            raise

    def _seal_elsewhere(self, result: ClaimResult) -> Path | None:
        """Write the bundle into a new temporary folder; None if that fails too."""
        try:
            folder = Path(tempfile.mkdtemp(prefix="harness-bundle-"))
        except OSError:
            return None
        try:
            return self._seal_below(Beneath(folder), result)
        except SealError:
            shutil.rmtree(folder, ignore_errors=True)
            return None

    def _seal_below(self, root: Beneath, result: ClaimResult) -> Path:
        record = result.record
        names = (record.issue, record.id, record.run)
        path = root.path.joinpath(*names)
        try:
            _refuse_replaced(root)
            for name in names:
                if not layout.is_folder_name(name):
                    raise ValueError(f"{name!r} cannot be the name of a folder")
            place = root / "/".join(names)
            place.parent.make_folder()
            with unfinished(place) as folder:
                self._write(folder, result)
                _refuse_replaced(root)
            for parent in (place.parent.parent, root):
                sync_folder(parent)
        except KeyboardInterrupt:
            if not path.is_dir():
                raise
            # The bundle is sealed already, so the caller must learn its place.
        except OSError as error:
            raise _explained(path, "was not sealed", error) from error
        except Exception as error:
            # The engine handles one kind of failure only, even for a defect of the harness.
            raise SealError(f"{path} was not sealed: {described(error)}") from error
        return path

    def _write(self, folder: Beneath, result: ClaimResult) -> None:
        # The digests are of the content in memory, so verifying finds a byte that the disk lost.
        digests: dict[str, str] = {}
        size = 0
        for name, content in _files(result):
            size += len(content)
            if len(content) > layout.LARGEST_DOCUMENT or size > layout.LARGEST_BUNDLE:
                raise ValueError(
                    f"{name} has {len(content)} bytes and the bundle {size}; a file may have {layout.LARGEST_DOCUMENT} "
                    f"and all together {layout.LARGEST_BUNDLE}: measure less, or leave it as an artifact"
                )
            write_new(folder / name, content)
            digests[name] = hashlib.sha256(content).hexdigest()
        sealed = manifest.render(digests)
        write_new(folder / layout.MANIFEST, sealed)
        if self._attest is not None:
            # The subject in the contract file: `contract.subject` is the one that was measured.
            subject = result.contract.document["subject"]
            write_new(folder / layout.ATTESTATION, self._attest(result.record, subject, sealed))
        sync_tree(folder)


def _files(result: ClaimResult) -> Iterator[tuple[str, bytes]]:
    redactor = Redactor()
    yield layout.RECORD, json_bytes(result.record.to_json())
    yield layout.CONTRACT, result.contract.content
    yield layout.ENVIRONMENT, json_bytes(dict(result.environment))
    yield from subject_files(result.subject)
    lines, log = [], [*sections(SUBJECT, result.subject, _SUBJECT_LOG)]
    for mutant, recorded in zip(result.contract.mutants, result.record.mutants, strict=True):
        if trial := result.mutants.get(mutant.id):
            case = artifacts.counterexample(trial.artifacts, redactor) if trial.artifacts is not None else None
            lines.append(mutant_line(result.contract, mutant, recorded.outcome(), trial, case))
            log += sections(trial_of(mutant.id), trial, _MUTANT_LOG)
    yield layout.MUTANTS, b"".join(lines)
    yield layout.LOGS, b"".join(log)
    if result.subject.artifacts is not None:
        yield from _artifacts(result.subject.artifacts, redactor)


def _refuse_replaced(root: Beneath) -> None:
    """Raise OSError if the root's path leads to another folder than the open descriptor."""
    if root.held is not None:
        held, current = os.fstat(root.held), os.stat(root.root)
        if (held.st_dev, held.st_ino) != (current.st_dev, current.st_ino):
            raise OSError(errno.ESTALE, "was replaced by another folder during the run", str(root.root))


def _explained(place: Path, what: str, error: OSError) -> SealError:
    remedy = _REMEDIES.get(error.errno or 0, "")
    explained = SealError(f"{place} {what}: {error}" + (f" ({remedy})" if remedy else ""))
    explained.errno = error.errno
    return explained


def _artifacts(folder: Beneath, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    entries: list[artifacts.Artifact] = []
    omitted = 0
    for entry, content in artifacts.collect(folder, redactor):
        if entry is None:
            omitted += 1
            continue
        if entry.copied and entry.name == layout.COUNTEREXAMPLE:
            yield layout.COUNTEREXAMPLE, content
            continue
        entries.append(entry)
        if entry.copied:
            yield f"{layout.ARTIFACTS}/{entry.name}", content
    if entries:
        yield layout.INDEX, json_bytes(artifacts.index(entries, omitted))


class Environment(TypedDict):
    """The machine and the software on which a claim ran."""

    host: JsonObject
    """The result of `harness.machine.host.probe`."""
    software: JsonObject
    variables: Mapping[str, str]
    """Environment variables that influence how code runs; secrets are masked."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim's record, and the data from which it was made."""

    record: Record
    contract: Contract
    subject: TrialResult
    mutants: Mapping[str, TrialResult]
    """The trials of the mutants that ran, by id."""
    environment: Environment


Seal = Callable[[ClaimResult], Path | None]
"""Writes a bundle and returns its folder; raises OSError if it cannot. None: the command writes no bundles."""

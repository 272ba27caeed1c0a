"""Sealing: a claim's result becomes a folder that is either whole or not there.

    sealer = Sealer(project.evidence, VIEWS)
    place = sealer.seal(result)     # evidence/PMAT-697/F-DISTILL-SMOKE-001/2026-11-20T201503Z-h200-3f2a9c

The folder is written beside its place, brought to the disk file by file, and renamed once.
"""

from __future__ import annotations

import errno
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import final

from harness.base.redaction import Redactor
from harness.evidence import artifacts, manifest, series
from harness.evidence.durable import sync_folder, sync_tree, write_new
from harness.evidence.layout import (
    ARTIFACTS,
    ATTESTATION,
    CONTRACT,
    ENVIRONMENT,
    INDEX,
    LARGEST_BUNDLE,
    LARGEST_DOCUMENT,
    MANIFEST,
    RECORD,
    VIEWS,
    is_folder_name,
    mutant_file,
)
from harness.evidence.result import ClaimResult
from harness.evidence.unfinished import remove_stale, unfinished
from harness.judging.record import Record
from harness.search.counterexample import COUNTEREXAMPLE

__all__ = ["Attest", "SealError", "Sealer", "View"]

View = Callable[[Record, Path], str]
"""Writes a record in some format, as the text of a file; the folder has the bundle's other files, views aside."""

Attest = Callable[[Record, str, bytes], bytes]
"""The content of an attestation of a record, its contract's subject and a manifest (see `attestation.attest`)."""

_REMEDIES = {
    errno.ENOSPC: "free some space there, or name another folder with --evidence",
    errno.EDQUOT: "your quota is used up; free some space there, or name another folder with --evidence",
    errno.EFBIG: "the limit on file sizes (ulimit -f) is below that of a bundle",
    errno.EACCES: "make the folder writable, or name another with --evidence",
    errno.EPERM: "make the folder writable, or name another with --evidence",
    errno.EROFS: "the filesystem is mounted read-only; name another folder with --evidence",
    errno.EEXIST: "a run of this name is there already, or is just being written; run again",
    errno.ENOTDIR: "something in the way is a file; name another folder with --evidence",
}


class SealError(OSError):
    """A bundle was not written, and nothing was left that looks like one; the text names the place and the remedy."""


@final
class Sealer:
    """Writes bundles below one folder."""

    def __init__(self, root: Path, views: Mapping[str, View], attest: Attest | None = None) -> None:
        """Args:
        root: the evidence folder; made where it does not exist.
        views: what writes each of layout.VIEWS, by file name.
        attest: signs what is sealed; None: bundles stay unsigned.
        """
        unknown = sorted(set(views) - set(VIEWS))
        if unknown:
            raise ValueError(f"{unknown[0]} is no file of a bundle; known: {', '.join(VIEWS)}")
        self._root = root
        self._views = dict(views)
        self._attest = attest

    def prepare(self) -> None:
        """Make sure, before hours of work, that a bundle could be written.

        Raises:
            SealError: the folder cannot take files.
        """
        if self._root.exists() and not self._root.is_dir():
            raise SealError(f"{self._root} cannot take evidence: it is a file; name a folder with --evidence")
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as probe:
                probe.write(bytes(1 << 16))
        except OSError as error:
            raise _explained(self._root, "cannot take evidence", error) from error

    def seal(self, result: ClaimResult) -> Path:
        """Write the bundle of a result and return its folder.

        Raises:
            SealError: the result cannot be written as files, or the folder cannot take them. Whatever was written is
                removed as far as that is possible.
        """
        record = result.record
        place = self._root / record.issue / record.id / record.run
        try:
            for name in (record.issue, record.id, record.run):
                if not is_folder_name(name):
                    raise ValueError(f"{name!r} cannot be the name of a folder")
            place.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(place.parent)
            with unfinished(place) as folder:
                self._write(folder, result)
            for parent in (place.parent.parent, self._root):
                sync_folder(parent)
        except KeyboardInterrupt:
            if not place.is_dir():
                raise
            # It was sealed already, and nobody may say that there is no evidence.
        except OSError as error:
            raise _explained(place, "was not sealed", error) from error
        except Exception as error:
            # A defect of ours in some view, say: whoever runs claims has to deal with one kind of failure only.
            raise SealError(f"{place} was not sealed: {type(error).__name__}: {error}") from error
        return place

    def _write(self, folder: Path, result: ClaimResult) -> None:
        # Digests of what is meant to be written: should the disk lose a byte, verifying tells.
        digests: dict[str, str] = {}
        size = 0
        for name, content in self._files(result, folder):
            size += len(content)
            if len(content) > LARGEST_DOCUMENT or size > LARGEST_BUNDLE:
                raise ValueError(
                    f"{name} has {len(content)} bytes and the bundle {size}; a file may have {LARGEST_DOCUMENT} and "
                    f"all together {LARGEST_BUNDLE}: measure less, or leave it as an artifact"
                )
            write_new(folder / name, content)
            digests[name] = hashlib.sha256(content).hexdigest()
        sealed = manifest.render(digests)
        write_new(folder / MANIFEST, sealed)
        if self._attest is not None:
            # The contract's own subject: a result's contract has the one that was measured.
            subject = result.contract.document["subject"]
            write_new(folder / ATTESTATION, self._attest(result.record, subject, sealed))
        sync_tree(folder)

    def _files(self, result: ClaimResult, folder: Path) -> Iterator[tuple[str, bytes]]:
        yield RECORD, series.json_bytes(result.record.to_json())
        yield CONTRACT, result.contract.content
        yield ENVIRONMENT, series.json_bytes(dict(result.environment))
        yield from series.trial_files(result.subject, series.SUBJECT)
        redactor = Redactor()
        for mutant, trial in result.mutants.items():
            if not is_folder_name(mutant):
                raise ValueError(f"{mutant!r} cannot be the name of a folder")
            for name, content in series.trial_files(trial, series.MUTANT):
                yield mutant_file(mutant, name), content
            killer = artifacts.counterexample(trial.artifacts, redactor) if trial.artifacts is not None else None
            if killer is not None:
                yield mutant_file(mutant, COUNTEREXAMPLE), killer
        if result.subject.artifacts is not None:
            yield from _artifacts(result.subject.artifacts, redactor)
        for name, view in self._views.items():
            # What was yielded so far has been written by now: a view may read it.
            yield name, view(result.record, folder).encode("utf-8", errors="backslashreplace")


def _explained(place: Path, what: str, error: OSError) -> SealError:
    remedy = _REMEDIES.get(error.errno or 0, "")
    explained = SealError(f"{place} {what}: {error}" + (f" ({remedy})" if remedy else ""))
    explained.errno = error.errno
    return explained


def _artifacts(folder: Path, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    entries: list[artifacts.Artifact] = []
    omitted = 0
    for entry, content in artifacts.collect(folder, redactor):
        if entry is None:
            omitted += 1
            continue
        entries.append(entry)
        if entry.copied:
            yield f"{ARTIFACTS}/{entry.name}", content
    if entries:
        yield INDEX, series.json_bytes(artifacts.index(entries, omitted))

"""The files of a bundle: their names, the limits on their number and size, and where bundles are.

evidence/<issue>/<claim>/<run>/
  record.json            the claim, the verdict, every clause with value and bound, what killed each mutant
  contract.json          the contract's bytes
  observation.json       the measurements of the subject's trial
  environment.json       host, software, variables
  metrics.csv            the subject's step series
  telemetry.csv          samples of the machine's state
  mutants.jsonl          one line for each mutant that ran: the measurements that its clauses read, and telemetry
  trials.log             the log of each trial; its stdout and stderr, bounded, with the digest of the whole
  counterexample.json    only if a search found one
  artifacts/             only if the falsifier wrote any: INDEX.json and at most three small files
  MANIFEST.sha256
  attestation.intoto.jsonl    only if the bundle is signed

While the harness writes a bundle, its folder is called .unfinished-<run> (see `harness.evidence.atomic_dir`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = [
    "ARTIFACTS",
    "ATTESTATION",
    "CONTRACT",
    "COUNTEREXAMPLE",
    "DEEPEST",
    "ENVIRONMENT",
    "INDEX",
    "LARGEST_BUNDLE",
    "LARGEST_DOCUMENT",
    "LOGS",
    "MANIFEST",
    "METRICS",
    "MOST_ARTIFACTS",
    "MOST_ENTRIES",
    "MOST_FILES",
    "MUTANTS",
    "OBSERVATION",
    "OPTIONAL",
    "RECORD",
    "REQUIRED",
    "TELEMETRY",
    "UNFINISHED",
    "UNPACKING",
    "find_bundles",
    "is_folder_name",
]

MANIFEST: Final = "MANIFEST.sha256"
ATTESTATION: Final = "attestation.intoto.jsonl"
"""The manifest does not list this file, because the signature covers the manifest."""
RECORD: Final = "record.json"
CONTRACT: Final = "contract.json"
ENVIRONMENT: Final = "environment.json"
OBSERVATION: Final = "observation.json"
METRICS: Final = "metrics.csv"
TELEMETRY: Final = "telemetry.csv"
MUTANTS: Final = "mutants.jsonl"
LOGS: Final = "trials.log"
COUNTEREXAMPLE: Final = "counterexample.json"
"""The case on which the subject refutes the claim."""
ARTIFACTS: Final = "artifacts"
INDEX: Final = "artifacts/INDEX.json"

REQUIRED: Final = (RECORD, CONTRACT, OBSERVATION, ENVIRONMENT, METRICS, TELEMETRY, MUTANTS, LOGS)
"""The files that every bundle has, besides the manifest."""
OPTIONAL: Final = (COUNTEREXAMPLE, INDEX)
MOST_FILES: Final = 15
MOST_ARTIFACTS: Final = MOST_FILES - len(REQUIRED) - len(OPTIONAL) - len((MANIFEST, ATTESTATION))

UNFINISHED: Final = ".unfinished-"
"""Prefix of a folder that is being written, or whose writer died."""

UNPACKING: Final = ".unpacking-"
"""Prefix of a folder into which bundles are being unpacked or merged, or whose process died."""

LARGEST_DOCUMENT: Final = 16 << 20
"""Maximum bytes of one JSON or CSV file. Parsing takes up to 30 times the memory."""
LARGEST_BUNDLE: Final = 128 << 20
"""Maximum bytes of all files together. A typical bundle has less than half a megabyte."""
MOST_ENTRIES: Final = 256
"""Maximum entries that are listed. It exceeds MOST_FILES, so that a finding can name each extra file."""
DEEPEST: Final = 12
"""Maximum depth of folders."""

_MARKS: Final = frozenset({MANIFEST, RECORD, OBSERVATION})
"""A folder with one of these files is, or was, a bundle."""
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def is_folder_name(text: str) -> bool:
    """Whether an id is a valid name of one folder."""
    return _FOLDER_NAME.fullmatch(text) is not None


def find_bundles(paths: Iterable[Path]) -> list[Path]:
    """Return the bundles at or below these folders, including unfinished ones, sorted. Links are not followed."""
    bundles: dict[str, None] = {}
    for start in paths:
        pending = [str(start)]
        while pending:
            folder = pending.pop()
            unfinished = os.path.basename(folder).startswith((UNFINISHED, UNPACKING))
            folders = None if unfinished else _look_into(folder)
            if folders is None:
                bundles[folder] = None
            else:
                pending += folders
    return [Path(folder) for folder in sorted(bundles, key=lambda folder: folder.split("/"))]


def _look_into(folder: str) -> list[str] | None:
    """Return the folders in a folder; None if it is a bundle or unreadable, so that it is reported."""
    if os.path.lexists(f"{folder}/{MANIFEST}"):  # as in most folders, which then need not be listed
        return None
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except OSError:
        return None
    if any(entry.name in _MARKS for entry in entries):
        return None
    return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]

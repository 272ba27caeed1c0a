"""What a bundle consists of: the names of its files, and the sizes beyond which it is none.

evidence/<issue>/<claim>/<run>/
  record.json            the claim, the verdict, every clause with value and bound, what killed each mutant
  contract.json          the contract's bytes
  observation.json       what the subject's trial measured
  environment.json       host, software, variables
  metrics.csv            the subject's step series
  telemetry.csv          how the machine behaved meanwhile
  mutants.jsonl          a line a mutant that ran: what its clauses read, and how the trial was watched
  trials.log             stdout and stderr of every trial, bounded, with the digest of the whole
  counterexample.json    only if a search found one
  artifacts/             only if the falsifier left any: INDEX.json and at most three small files
  MANIFEST.sha256
  attestation.intoto.jsonl    only if somebody signed

While it is written, the folder is called .unfinished-<run>~… (see `harness.evidence.durable`).
"""

from __future__ import annotations

import re
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
    "is_folder_name",
]

MANIFEST: Final = "MANIFEST.sha256"
ATTESTATION: Final = "attestation.intoto.jsonl"
"""The one file that the manifest does not list, for it is signed over the manifest."""
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
"""What every bundle has, beside the manifest."""
OPTIONAL: Final = (COUNTEREXAMPLE, INDEX)
MOST_FILES: Final = 15
MOST_ARTIFACTS: Final = MOST_FILES - len(REQUIRED) - len(OPTIONAL) - len((MANIFEST, ATTESTATION))

UNFINISHED: Final = ".unfinished-"
"""How the name of a folder begins that is being written, or whose writer died."""

UNPACKING: Final = ".unpacking-"
"""How the name of a folder begins into which an archive is being unpacked, or was when its reader died."""

LARGEST_DOCUMENT: Final = 16 << 20
"""Bytes of one JSON or CSV file. More is neither written nor read: parsing takes up to thirty times as much memory."""
LARGEST_BUNDLE: Final = 128 << 20
"""Bytes of all files together; what reviewers are meant to read has less than half a megabyte."""
MOST_ENTRIES: Final = 256
"""Files and folders that are looked at, so that each file too many is named. A bundle has at most MOST_FILES files."""
DEEPEST: Final = 12
"""Folders below folders."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def is_folder_name(text: str) -> bool:
    """Whether an id can be the name of one folder and cannot lead out of it."""
    return _FOLDER_NAME.fullmatch(text) is not None

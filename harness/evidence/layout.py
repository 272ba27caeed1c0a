"""What a bundle consists of: the names of its files, and the sizes beyond which it is none.

evidence/<issue>/<claim>/<run>/
  record.json contract.json environment.json
  observation.json trial.json metrics.csv telemetry.csv stdout.log stderr.log    the subject's trial
  mutants/<id>/observation.json …                                                the same for each mutant's trial
  mutants/<id>/counterexample.json                                               the case that killed it, from a search
  artifacts/INDEX.json artifacts/counterexample.json artifacts/…
  junit.xml summary.md report.html                                               views of the files above
  MANIFEST.sha256
  attestation.intoto.jsonl                                                       only where somebody signed

While it is written, the folder is called .unfinished-<run>~… (see `harness.evidence.unfinished`).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ARTIFACTS",
    "ATTESTATION",
    "CLAIM_FILES",
    "CONTRACT",
    "COUNTEREXAMPLE",
    "DEEPEST",
    "ENVIRONMENT",
    "INDEX",
    "LARGEST_BUNDLE",
    "LARGEST_DOCUMENT",
    "MANIFEST",
    "METRICS",
    "MOST_FILES",
    "MUTANTS",
    "OBSERVATION",
    "RECORD",
    "STDERR",
    "STDOUT",
    "TELEMETRY",
    "TRIAL",
    "TRIAL_FILES",
    "UNFINISHED",
    "VIEWS",
    "is_folder_name",
    "mutant_file",
]

MANIFEST: Final = "MANIFEST.sha256"
ATTESTATION: Final = "attestation.intoto.jsonl"
"""The one file that the manifest does not list, for it is signed over the manifest."""
RECORD: Final = "record.json"
CONTRACT: Final = "contract.json"
ENVIRONMENT: Final = "environment.json"
OBSERVATION: Final = "observation.json"
TRIAL: Final = "trial.json"
METRICS: Final = "metrics.csv"
TELEMETRY: Final = "telemetry.csv"
STDOUT: Final = "stdout.log"
STDERR: Final = "stderr.log"
MUTANTS: Final = "mutants"
ARTIFACTS: Final = "artifacts"
INDEX: Final = "artifacts/INDEX.json"
COUNTEREXAMPLE: Final = "artifacts/counterexample.json"
"""The case on which the subject refutes the claim, where a search found one."""

CLAIM_FILES: Final = (RECORD, CONTRACT, ENVIRONMENT)
"""What every bundle has once."""
TRIAL_FILES: Final = (OBSERVATION, TRIAL, METRICS, TELEMETRY, STDOUT, STDERR)
"""What every trial has: the subject's at the top, a mutant's in its own folder."""
VIEWS: Final = ("junit.xml", "summary.md", "report.html")
"""What may be made again from the other files, and may therefore be absent."""

UNFINISHED: Final = ".unfinished-"
"""How the name of a folder begins that is being written, or whose writer died."""

LARGEST_DOCUMENT: Final = 16 << 20
"""Bytes of one JSON or CSV file. More is neither written nor read: parsing takes up to thirty times as much memory."""
LARGEST_BUNDLE: Final = 128 << 20
"""Bytes of all files together; what reviewers are meant to read has less than half a megabyte."""
MOST_FILES: Final = 4096
DEEPEST: Final = 12
"""Folders below folders."""

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


def is_folder_name(text: str) -> bool:
    """Whether an id can be the name of one folder and cannot lead out of it."""
    return _FOLDER_NAME.fullmatch(text) is not None


def mutant_file(mutant: str, name: str) -> str:
    """Where a mutant's trial has one of TRIAL_FILES, or its counterexample.json."""
    return f"{MUTANTS}/{mutant}/{name}"

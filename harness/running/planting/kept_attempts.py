"""The attempts of earlier campaigns, a line of JSON each, so that an interrupted campaign continues where it ended.

The file is named by a digest of everything that decides a fate: contract, sources, harness, profile, device and seed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import suppress
from pathlib import Path

from harness.base.strictjson import JsonObject
from harness.running.planting.results import Attempt

__all__ = ["KeptAttempts"]


class KeptAttempts:
    """The attempts of one claim, by defect."""

    def __init__(self, folder: Path, claim: str, decides: JsonObject) -> None:
        """Args:
        folder: where the files are kept.
        decides: what the fates depend on.
        """
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        self._path = folder / f"{claim}-{digest[:16]}.jsonl"
        self._turn = threading.Lock()
        self._found: dict[str, Attempt] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, LookupError, TypeError):  # an interruption cut the line short
                    entry = json.loads(line)
                    self._found[entry["defect"]] = Attempt.from_json(entry["attempt"])

    def get(self, defect: str) -> Attempt | None:
        """The attempt on a defect; None if it was not tried."""
        return self._found.get(defect)

    def add(self, defect: str, attempt: Attempt) -> None:
        """Keep an attempt."""
        with self._turn:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps({'defect': defect, 'attempt': attempt.to_json()})}\n")

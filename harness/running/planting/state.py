"""What planting has found so far, a line of JSON per defect, so that an interrupted run continues where it ended.

The file is named by a digest of everything that decides a fate: contract, sources, harness, profile, device and seed.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

from harness.base.strictjson import JsonObject

__all__ = ["State"]


class State:
    """The fates of one claim's defects."""

    def __init__(self, folder: Path, claim: str, decides: JsonObject) -> None:
        """Args:
        folder: where the files are kept.
        decides: what the fates depend on.
        """
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        self._path = folder / f"{claim}-{digest[:16]}.jsonl"
        self._turn = threading.Lock()
        self._found: dict[str, JsonObject] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    self._found[entry["defect"]] = entry
                except (ValueError, LookupError, TypeError):
                    continue  # the line that an interruption cut short

    def get(self, defect: str) -> JsonObject | None:
        """What was found of a defect; None if it was not tried."""
        return self._found.get(defect)

    def add(self, defect: str, entry: JsonObject) -> None:
        """Keep what was found of a defect."""
        with self._turn:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps({'defect': defect, **entry})}\n")

"""The lines of a training log."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any


def log_lines(log: Path) -> list[dict[str, Any]]:
    """The values of each line by name; lines without a step and a finite loss are left out."""
    lines = []
    with contextlib.suppress(OSError):
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                values = json.loads(line)
                if math.isfinite(values["loss"]):
                    lines.append({**values, "step": int(values["step"]), "loss": float(values["loss"])})
    return lines

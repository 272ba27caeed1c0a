"""A module of these claims, run in a process that starts with variables of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from harness.machine.limited_process import completed

__all__ = ["printed"]


def printed(
    module: str, *arguments: str, environment: Mapping[str, str], unset: tuple[str, ...], seconds: float
) -> Any:
    """Run a module with `python -m`, and return the JSON document that it prints.

    Args:
        environment: its variables, beside those of this process.
        unset: beginnings or ends of the names of this process's variables that it starts without.

    Raises:
        RuntimeError: it ended with another status than 0.
        harness.machine.limited_process.Stopped: it did not end within `seconds`, and was killed.
    """
    clean = {name: value for name, value in os.environ.items() if not (name.startswith(unset) or name.endswith(unset))}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = completed([sys.executable, "-m", module, *arguments], seconds, environment={**clean, **path, **environment})
    if run.returncode:
        raise RuntimeError(f"{module} ended with {run.returncode}: {run.stderr[-600:]}")
    return json.loads(run.stdout)

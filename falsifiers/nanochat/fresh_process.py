"""Runs a module of these claims in a process with its own environment variables."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from harness.machine.limited_process import completed


def printed(
    module: str, *arguments: str, environment: Mapping[str, str], unset: tuple[str, ...], seconds: float
) -> Any:
    """Run a module with `python -m`, and return the JSON document that it prints.

    Args:
        environment: variables in addition to those of this process.
        unset: prefixes or suffixes of the names of this process's variables to remove.

    Raises:
        RuntimeError: its exit status is not 0.
        harness.machine.limited_process.Stopped: it did not end within `seconds`, and was killed.
    """
    clean = {name: value for name, value in os.environ.items() if not (name.startswith(unset) or name.endswith(unset))}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = completed([sys.executable, "-m", module, *arguments], seconds, environment={**clean, **path, **environment})
    if run.returncode:
        raise RuntimeError(f"{module} ended with {run.returncode}: {run.stderr[-600:]}")
    return json.loads(run.stdout)

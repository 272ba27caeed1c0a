"""Runs at the start of each Python process that a trial starts. It disables cached bytecode of the project's code.

Stale bytecode would run code that no record names. A trial's environment puts this folder first on PYTHONPATH, and
lists the folders of projects in HARNESS_SOURCE_ONLY. The user's `sitecustomize` runs too.
"""

import errno
import importlib.machinery
import importlib.util
import os
import sys


def _install(folders: str) -> None:
    harness = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
    beginnings = tuple(folder + os.sep for folder in folders.split(os.pathsep) if folder)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[0].endswith(".pyc"):
            name = os.path.abspath(arguments[0])
            if name.startswith(beginnings) and "site-packages" not in name and not name.startswith(harness):
                raise PermissionError(errno.EACCES, "the harness runs a project's code from its source", name)

    sys.addaudithook(hook)
    sys.dont_write_bytecode = True


def _run_the_next() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install(os.environ.get("HARNESS_SOURCE_ONLY", ""))
_run_the_next()

"""What the corpus's cases are built on: a function or a suite as a subject, and the switch of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness import Setting
from harness.authoring.tensor_function.hosting import Host
from harness.contract.entry_point import resolve
from harness.tools.suite.session import Suite

__all__ = ["Switch", "of_function", "of_suite", "written"]


class Switch:
    """A trainer whose mended form has code of its own: it is right if the setting's parameter `mended` is true.

    It stands before the trainer among the bases.
    """

    def __init__(self, setting: Setting) -> None:
        """Read the switch before anything is made."""
        self.mended = bool(setting.parameters.get("mended", False))
        super().__init__(setting)  # type: ignore[call-arg]  # of the trainer


def of_function(setting: Setting) -> Host:
    """The function of the setting's `case`, with its mistake or `mended`; without a case, the setting's `function`."""
    case = setting.parameters["case"]
    if case is None:
        return Host(resolve(setting.parameters["function"]))
    made: Callable[[bool], Callable[..., Any]] = resolve(case)
    return Host(made(bool(setting.parameters["mended"])))


def of_suite(setting: Setting) -> Suite:
    """The pytest suite of the setting's `case`: its files, with their mistake or `mended`."""
    given = setting.parameters
    made: Callable[[bool], Mapping[str, str]] = resolve(given["case"])
    root = written(made(bool(given["mended"])), setting.workspace / "suite")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a session takes a third of the time
    return Suite(root, [*given["options"], *given["paths"]], setting.workspace / "sessions", alone)


def written(files: Mapping[str, str], folder: Path) -> Path:
    """Write the files of a suite into a new folder, and return it."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder

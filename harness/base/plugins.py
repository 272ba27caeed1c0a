"""Plugins: entry points of a group, from any distribution, imported on use. Also the optional extras of the harness."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base import toml

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["NAME", "Plugin", "PluginError", "installation", "plugins"]

NAME = "falsifier-harness"


class PluginError(Exception):
    """An entry point cannot be used. The text names the distribution that declares it."""


@dataclass(frozen=True)
class Plugin:
    """A name in a group, with its entry point in each distribution that declares it."""

    name: str
    entry_points: dict[str, EntryPoint]

    @property
    def origin(self) -> str:
        """The distributions and their entry points, as text."""
        return " and ".join(
            f"{distribution} ({entry_point.value})" for distribution, entry_point in sorted(self.entry_points.items())
        )

    def load(self) -> Any:
        """Import the object.

        Raises:
            PluginError: several distributions declare the name, or the import fails.
        """
        if len(self.entry_points) > 1:
            raise PluginError(f"{self.name} is declared by {self.origin}; uninstall all of them but one")
        [entry_point] = self.entry_points.values()
        try:
            return entry_point.load()
        except (Exception, SystemExit) as error:
            cause = f"{type(error).__name__}: {error}"
            raise PluginError(f"{self.name} of {self.origin} cannot be imported: {cause}; update it") from error


def plugins(group: str) -> dict[str, Plugin]:
    """Return the plugins of a group by name. In a checkout, the harness's own come from its pyproject.toml."""
    from importlib.metadata import EntryPoint  # slow to import

    declared = _declared_in_checkout()
    groups: dict[str, dict[str, EntryPoint]] = {
        name: {NAME: EntryPoint(name, value, group)} for name, value in (declared or {}).get(group, {}).items()
    }
    for entry_point in _installed(tuple(sys.path)).select(group=group):
        distribution = entry_point.dist.name if entry_point.dist is not None else "an unnamed distribution"
        if declared is None or distribution != NAME:
            groups.setdefault(entry_point.name, {})[distribution] = entry_point
    return {name: Plugin(name, groups[name]) for name in sorted(groups)}


@cache
def _installed(search: tuple[str, ...]) -> Any:
    """Return the entry points of all distributions on a search path."""
    from importlib.metadata import entry_points

    return entry_points()


@cache
def _declared_in_checkout() -> dict[str, dict[str, str]] | None:
    """Return the groups in the pyproject.toml of the checkout that this module is in; None outside a checkout."""
    try:
        project = toml.load(Path(__file__).parents[2] / "pyproject.toml")["project"]
        declared: dict[str, dict[str, str]] = project["entry-points"]
    except (OSError, LookupError):
        return None
    return declared if project["name"] == NAME else None


def installation(extra: str) -> str:
    """Return the pip command that installs an extra. Where the harness is installed, pip keeps that version."""
    checkout = Path(__file__).parents[2]
    origin = checkout if (checkout / "pyproject.toml").is_file() else NAME
    return f"pip install {shlex.quote(f'{origin}[{extra}]')}"

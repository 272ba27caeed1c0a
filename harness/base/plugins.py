"""What distributions add to the harness, ours and others: entry points of a group, imported when they are used; extras.

An extra is a list of optional packages of ours."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from harness.base import strictjson, toml

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["NAME", "Plugin", "PluginError", "installation", "plugins"]

NAME = "falsifier-harness"


class PluginError(Exception):
    """An entry point cannot be used. The text names the distribution that declares it."""


@dataclass(frozen=True)
class Plugin:
    """A name of a group, with its entry point in each distribution that gives it."""

    name: str
    entry_points: dict[str, EntryPoint]

    @property
    def origin(self) -> str:
        """The distributions, and what they declare."""
        return " and ".join(
            f"{distribution} ({entry_point.value})" for distribution, entry_point in sorted(self.entry_points.items())
        )

    def load(self) -> Any:
        """Import the object.

        Raises:
            PluginError: several distributions give the name, or the import fails in any way.
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
    """Return what is declared in a group, by name. A checkout declares it in its pyproject.toml, installed or not."""
    from importlib.metadata import EntryPoint, entry_points  # slow to import

    declared = _declared_in_checkout()
    groups: dict[str, dict[str, EntryPoint]] = {
        name: {NAME: EntryPoint(name, value, group)} for name, value in (declared or {}).get(group, {}).items()
    }
    for entry_point in entry_points(group=group):
        distribution = entry_point.dist.name if entry_point.dist is not None else "an unnamed distribution"
        if declared is None or distribution != NAME:
            groups.setdefault(entry_point.name, {})[distribution] = entry_point
    return {name: Plugin(name, groups[name]) for name in sorted(groups)}


def _declared_in_checkout() -> dict[str, dict[str, str]] | None:
    """Return the groups in the pyproject.toml of the checkout that this module is in; None outside a checkout."""
    try:
        project = toml.load(Path(__file__).parents[2] / "pyproject.toml")["project"]
        declared: dict[str, dict[str, str]] = project["entry-points"]
    except (OSError, LookupError):
        return None
    return declared if project["name"] == NAME else None


def installation(extra: str) -> str:
    """Return the command that installs an extra of the harness from where the harness itself came."""
    return f"pip install {shlex.quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    checkout = Path(__file__).parents[2]
    if (checkout / "pyproject.toml").is_file():
        return f"{checkout}[{extra}]"
    origin = _origin()
    url: str = origin.get("url", "")
    if url.startswith("file://"):
        return f"{unquote(url.removeprefix('file://'))}[{extra}]"
    scheme = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return f"{NAME}[{extra}] @ {scheme}{url}" if url else f"{NAME}[{extra}]"


def _origin() -> dict[str, Any]:
    """Return where pip installed the harness from, by PEP 610; empty if it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    return dict(strictjson.loads(text)) if text else {}

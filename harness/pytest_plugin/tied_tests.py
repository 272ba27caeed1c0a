"""`pytest.mark.claim("F-…")`: ordinary tests that belong to a claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base import strictjson
from harness.contract.claim_folder import claim_of
from harness.contract.project import Project, ProjectError

__all__ = ["CLAIM", "tie"]

CLAIM = "claim"
"""The property of a test's report that names a claim."""
_PROJECTS = pytest.StashKey[dict[Path, "Project | None"]]()
_CONTRACTS = pytest.StashKey[dict[Path, dict[str, Path]]]()


def tie(item: pytest.Item) -> None:
    """Tie a test to the claims that its markers name: it gets their issues and specs as markers, and the property.

    Outside of a project the marker means nothing: other libraries may use the same word.

    Raises:
        CollectError: a marker names no claim of the project.
    """
    project = _project(item)
    if project is None:
        return
    contracts = _contracts(item.config, project)
    for mark in item.iter_markers("claim"):
        if not mark.args or mark.kwargs:
            raise pytest.Collector.CollectError(f"{item.nodeid}: name a claim, as in pytest.mark.claim('F-…-001')")
        for name in mark.args:
            if not isinstance(name, str) or name not in contracts:
                raise pytest.Collector.CollectError(f"{item.nodeid}: {_unknown(project, str(name))}")
            if (CLAIM, name) not in item.user_properties:
                item.user_properties.append((CLAIM, name))
            item.extra_keyword_matches.add(name)
            _mark(item, contracts[name])


def _project(item: pytest.Item) -> Project | None:
    known = item.config.stash.setdefault(_PROJECTS, {})
    folder = item.path.parent
    if folder not in known:
        known[folder] = Project.around(folder)
    return known[folder]


def _contracts(config: pytest.Config, project: Project) -> dict[str, Path]:
    known = config.stash.setdefault(_CONTRACTS, {})
    if project.root not in known:
        known[project.root] = {claim_of(path): path for path in project.known()}
    return known[project.root]


def _unknown(project: Project, name: str) -> str:
    try:
        return f"{project.contract(name).id} has a contract that was written just now"
    except ProjectError as error:
        return str(error)


def _mark(item: pytest.Item, contract: Path) -> None:
    """Add the markers of the claim's issue and spec, as `pytest --claims` adds them to the claim itself."""
    try:
        document = strictjson.load(contract)
        names = [f"{key}_{document[key]}" for key in ("issue", "spec")]
    except (OSError, strictjson.JsonError, KeyError, TypeError):
        return  # `harness lint` says what is wrong with the contract
    for name in names:
        item.config.addinivalue_line("markers", f"{name}: a claim's {name.partition('_')[0]}")
        item.add_marker(name)

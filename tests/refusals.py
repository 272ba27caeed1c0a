"""Contracts with one defect, and the problems for which loading refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base.schemas import Problem
from harness.contract import ContractError
from harness.contract.project import Project
from tests.contracts import document, write_contract

_MISSING = object()


def refused(project: Project, content: dict[str, Any] | str, name: str = "") -> list[Problem]:
    """The problems for which a contract is refused; the error names the file."""
    path = write_contract(project.root, content, name)
    with pytest.raises(ContractError) as error:
        project.load(path)
    assert path == error.value.path
    assert str(path) in str(error.value)
    return error.value.problems


def changed(*steps: str | int, to: Any = _MISSING) -> dict[str, Any]:
    """The valid contract with one value, found by its steps, replaced or removed."""
    whole = document()
    place: Any = whole
    for step in steps[:-1]:
        place = place[step]
    if to is _MISSING:
        del place[steps[-1]]
    elif isinstance(place, list) and steps[-1] == len(place):
        place.append(to)
    else:
        place[steps[-1]] = to
    return whole


def observed(**properties: Any) -> dict[str, Any]:
    """The valid contract with these properties added to its observation."""
    whole = document()
    whole["observation"]["properties"].update(properties)
    return whole

"""The option `-P KEY=VALUE`. A value that a contract does not allow is refused before anything runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import click

from harness.base import strictjson
from harness.base.redaction import Redactor
from harness.cli.options import named_texts, value_of
from harness.contract import Contract
from harness.report.messages import bound_text

__all__ = ["allowed", "overrides", "parameter_texts"]

_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list such as [1, 2]",
    dict: 'an object such as {"a": 1}',
}
"""The types of a contract's parameters, in words."""


def parameter_texts(settings: Iterable[str]) -> dict[str, str]:
    """Return the texts of -P by parameter.

    Raises:
        click.BadParameter: a setting has another form, or its value looks like a secret.
    """
    found = named_texts(settings, "-P")
    redactor = Redactor()
    for name, text in found.items():
        if redactor.mask(text) != text:
            raise _refused(f"{name} looks like a secret, and parameters are evidence")
    return found


def overrides(texts: Mapping[str, str], contracts: Iterable[Contract]) -> dict[str, Any]:
    """Return the values of parameters. Every contract must have each parameter and allow its value.

    Raises:
        click.BadParameter: a value is refused. The text says what is allowed.
    """
    found = {name: value_of(text) for name, text in texts.items()}
    for contract in contracts:
        for name, value in found.items():
            _check(contract, name, value)
    return found


def allowed(contract: Contract, name: str) -> str:
    """Return in words which values of a parameter a contract allows; empty if it declares none."""
    if contract.parameters is None:
        return ""
    itself: list[str] = []
    items: list[str] = []
    for clause in contract.parameters.bounds(name):
        words = bound_text.of(clause.bound, clause.unit)
        (itself if clause.path == (name,) else items).append(words)
    said = ", ".join(itself) + (f"; each item: {', '.join(items)}" if items else "")
    return said + (", or null" if name in contract.parameters.optional else "")


def _check(contract: Contract, name: str, given: Any) -> None:
    for profile in contract.profiles.values():
        if name not in profile.parameters:
            near = difflib.get_close_matches(name.lower(), profile.parameters, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(profile.parameters) or 'none'}"
            raise _refused(f"{contract.id} has no parameter {name!r}; {hint}")
    if contract.parameters is not None:
        if any(clause.path[0] == name for clause in contract.parameters.violations({name: given})):
            chosen = [profile.parameters[name] for profile in contract.profiles.values()]
            lists = [value for value in chosen if isinstance(value, list) and not isinstance(given, list)]
            example = f"; as in -P '{name}={strictjson.dumps(lists[0])}'" if lists else ""
            raise _refused(f"{name} cannot be {_said(given)}; {contract.id} allows: {allowed(contract, name)}{example}")
        if given is None:
            return
    for profile in contract.profiles.values():
        _same_type(name, given, profile.parameters[name])


def _same_type(name: str, given: Any, declared: Any) -> None:
    number = isinstance(declared, float) and isinstance(given, int) and not isinstance(given, bool)
    if not number and declared is not None and type(given) is not type(declared):
        raise _refused(f"{name} must be {_TYPES[type(declared)]}, not {_said(given)}")


def _said(given: Any) -> str:
    return given if isinstance(given, str) else strictjson.dumps(given)


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="-P")

"""Options of several commands, and the parsing of their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from harness.base import near, strictjson
from harness.base.redaction import Redactor
from harness.contract import Contract
from harness.report.messages import bound_text
from harness.running.request import DEVICES, PROFILES

__all__ = [
    "allowed",
    "device_option",
    "duration",
    "evidence_option",
    "named_texts",
    "overrides",
    "parameter_texts",
    "profile_option",
    "refusing",
    "value_of",
]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Return the seconds of a duration such as 90s, 20m or 1h. It is the type of an option."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 20m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def named_texts(settings: Iterable[str], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Return the text after each equals sign, by the name before it. If a name occurs twice, the last text counts.

    Raises:
        click.BadParameter: a setting has another form.
    """
    texts: dict[str, str] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not (separator and name):
            raise click.BadParameter(f"{setting!r} is not {form}", param_hint=option)
        texts[name] = text
    return texts


@contextmanager
def refusing(option: str, target: object) -> Iterator[None]:
    """Turn an OSError into a refusal of an option, whose target cannot be written."""
    try:
        yield
    except OSError as error:
        text = f"{target} cannot be written: {error.strerror}" if error.strerror else str(error)
        raise click.BadParameter(text, param_hint=option) from error


def value_of(text: str) -> Any:
    """Return the value of a JSON text, such as 8 or true; otherwise the text itself."""
    try:
        return strictjson.loads(text)
    except strictjson.JsonError:
        return text


def _device(context: click.Context, option: click.Parameter, text: str) -> str:
    if DEVICES.fullmatch(text):
        return text
    lowered = text.lower()
    near = "cuda" if lowered == "gpu" else lowered if lowered != text else ""
    hint = f"; did you mean {near}?" if near in ("auto", "cpu") or near.startswith("cuda") else ""
    raise click.BadParameter(f"{text!r} is not auto, cpu, cuda or cuda:N{hint}", param_hint="--device")


device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="auto|cpu|cuda[:N]",
    callback=_device,
    help="What to run on.",
)
"""The device of commands that run trials."""
profile_option = click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="auto",
    show_default=True,
    help="auto takes full if this machine meets its requirements, else reduced.",
)
"""The profile of commands that run claims."""
evidence_option = click.option(
    "--evidence",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of bundles, instead of the project's evidence/.",
)
"""The folder of commands that read bundles."""

_TYPES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list such as [1, 2]",
    dict: 'an object such as {"a": 1}',
}
"""Names of the types of a contract's parameters."""


def parameter_texts(settings: Iterable[str]) -> dict[str, str]:
    """Return the texts of -P by parameter.

    Raises:
        click.BadParameter: a setting has another form, or its value looks like a secret.
    """
    parsed = named_texts(settings, "-P")
    redactor = Redactor()
    for name, text in parsed.items():
        if redactor.mask(text) != text:
            raise _refused(f"{name} looks like a secret, and parameters are evidence")
    return parsed


def overrides(texts: Mapping[str, str], contracts: Iterable[Contract]) -> dict[str, Any]:
    """Return the values of parameters. Every contract must have each parameter and allow its value.

    Raises:
        click.BadParameter: a value is refused. The text says what is allowed.
    """
    values = {name: value_of(text) for name, text in texts.items()}
    for contract in contracts:
        for name, value in values.items():
            _check(contract, name, value)
    return values


def allowed(contract: Contract, name: str) -> str:
    """Describe the values of a parameter that a contract allows; empty if it declares none."""
    if contract.parameters is None:
        return ""
    itself: list[str] = []
    items: list[str] = []
    for clause in contract.parameters.bounds(name):
        words = bound_text.of(clause.bound, clause.unit)
        (itself if clause.path == (name,) else items).append(words)
    text = ", ".join(itself) + (f"; each item: {', '.join(items)}" if items else "")
    return text + (", or null" if name in contract.parameters.optional else "")


def _check(contract: Contract, name: str, override: Any) -> None:
    for profile in contract.profiles.values():
        if name not in profile.parameters:
            hint = near.hint(name, profile.parameters, f"it has {', '.join(profile.parameters) or 'none'}")
            raise _refused(f"{contract.id} has no parameter {name!r}; {hint}")
    if contract.parameters is not None:
        if any(clause.path[0] == name for clause in contract.parameters.violations({name: override})):
            chosen = [profile.parameters[name] for profile in contract.profiles.values()]
            lists = [value for value in chosen if isinstance(value, list) and not isinstance(override, list)]
            example = f"; as in -P '{name}={strictjson.dumps(lists[0])}'" if lists else ""
            raise _refused(
                f"{name} cannot be {_shown(override)}; {contract.id} allows: {allowed(contract, name)}{example}"
            )
        if override is None:
            return
    for profile in contract.profiles.values():
        _same_type(name, override, profile.parameters[name])


def _same_type(name: str, value: Any, declared: Any) -> None:
    number = isinstance(declared, float) and isinstance(value, int) and not isinstance(value, bool)
    if not number and declared is not None and type(value) is not type(declared):
        raise _refused(f"{name} must be {_TYPES[type(declared)]}, not {_shown(value)}")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else strictjson.dumps(value)


def _refused(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="-P")

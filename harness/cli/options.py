"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from harness.base import strictjson
from harness.running.request import DEVICES, PROFILES

__all__ = ["device_option", "duration", "evidence_option", "named_texts", "profile_option", "value_of"]

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
    found: dict[str, str] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not (separator and name):
            raise click.BadParameter(f"{setting!r} is not {form}", param_hint=option)
        found[name] = text
    return found


def value_of(text: str) -> Any:
    """Return the value of a JSON text, such as 8 or true; otherwise the text itself."""
    try:
        return strictjson.loads(text)
    except strictjson.JsonError:
        return text


def _device(context: click.Context, option: click.Parameter, text: str) -> str:
    if DEVICES.fullmatch(text):
        return text
    wanted = text.lower()
    near = "cuda" if wanted == "gpu" else wanted if wanted != text else ""
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

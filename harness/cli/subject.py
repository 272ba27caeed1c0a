"""The options `--subject` and `-P`, which choose the subject of each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from harness.base import near
from harness.base.strictjson import JsonObject
from harness.cli.options import overrides, parameter_texts, value_of
from harness.contract import Contract
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.other_subject import NamedSubject, Subject, SubjectRefused, kinds, named, own_names
from harness.contract.project import Project

__all__ = ["checked_subject", "choose"]


def choose(
    text: str | None, settings: Sequence[str], contracts: Sequence[Contract], project: Project
) -> dict[str, Subject]:
    """Return the subjects that an option or the project's settings choose, by claim.

    Raises:
        click.BadParameter: an option is refused. The text has the remedy.
    """
    parameters = parameter_texts(settings)
    texts = {contract.id: text or project.subject_of(contract.id) for contract in contracts}
    try:
        subjects = {value: named(value, project, is_default=text is None) for value in set(texts.values())}
        return {
            contract.id: subject
            for contract in contracts
            if (subject := _subject(texts[contract.id], subjects[texts[contract.id]], parameters, contract, project))
        }
    except SubjectRefused as error:
        raise _refused(str(error), error.option) from error


def _subject(
    text: str, named_subject: NamedSubject | None, parameters: Mapping[str, str], contract: Contract, project: Project
) -> Subject | None:
    if named_subject is None:
        changed = overrides(parameters, [contract])
        if not text:
            return Subject(overrides=changed) if changed else None
        return Subject.at(checked_subject(text, project), changed)
    own, others = _split(parameters, named_subject, contract)
    try:
        changed = overrides(others, [contract])
    except click.BadParameter as error:
        if shared := ", ".join(name for name in others if name in named_subject.parameters):
            raise _refused(
                f"{error.message}; if {shared} is your trainer's own, give it another name there", "-P"
            ) from error
        raise
    return named_subject.subject(contract, project, own, changed)


def checked_subject(text: str, project: Project) -> str:
    """Return an entry point. Raise BadParameter if the project does not define it."""
    prefix, _, value = text.partition(":")
    if prefix in kinds():
        raise _refused(f"only `harness run` takes {text}; name a subject of this project, as module:Name")
    if prefix.lower() in kinds():
        raise _refused(f"did you mean {prefix.lower()}:{value}?")
    if text.endswith(".toml"):
        raise _refused(f"command:{text} runs that trainer, recorded:{text} judges a run of it that is over; which?")
    try:
        locate(text, project.search)
    except EntryPointError as error:
        raise _refused(f"{error}; {error.remedy}") from error
    return text


def _split(
    parameters: Mapping[str, str], subject: NamedSubject, contract: Contract
) -> tuple[JsonObject, dict[str, str]]:
    """Split the values of -P into the subject's own parameters, with the types of their defaults, and the claim's."""
    claims = own_names(contract)
    accepted = {*subject.parameters}.difference(claims).union(subject.further)
    own: dict[str, Any] = {}
    others: dict[str, str] = {}
    for name, text in parameters.items():
        if name in accepted:
            own[name] = _typed(name, text, subject.parameters.get(name, ""), subject.name)
        elif name in claims:
            others[name] = text
        else:
            has = f"the subject has {', '.join(sorted(accepted)) or 'none'}"
            hint = near.hint(name, [*accepted, *claims], has)
            raise _refused(f"neither {contract.id} nor {subject.name} has a parameter {name!r}; {hint}", "-P")
    return own, others


def _typed(name: str, text: str, default: Any, file: str) -> Any:
    if isinstance(default, str):
        return text
    value = value_of(text)
    if not isinstance(value, (int, float)) or isinstance(value, bool) is not isinstance(default, bool):
        expected = "true or false" if isinstance(default, bool) else "a number"
        raise _refused(f"{name} is {expected} in {file}, not {text}", "-P")
    return value


def _refused(why: str, option: str = "--subject") -> click.BadParameter:
    return click.BadParameter(why, param_hint=option)

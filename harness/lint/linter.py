"""Lint: checks that a contract can be satisfied and refuted, and that its thresholds have sources.

    for finding in lint(project.load(path)):
        print(finding.severity, finding.pointer, finding.message)

The loader refuses malformed contracts. Lint finds well-formed contracts that prove nothing: bounds that no value can
reach, rules that raise or divide by zero, empty lists that pass, and contracts that no observation satisfies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject, pointer
from harness.contract import Contract
from harness.contract.clauses import ITEM, VALUE, Clause, SchemaClause, nodes
from harness.contract.consistency import credentials, largest_shapes, unwritten_code, unwritten_texts
from harness.contract.cost import Allowance
from harness.contract.expression import Node, NodeKind
from harness.contract.imports import imported_files
from harness.contract.keywords import is_number
from harness.contract.model import RESOLVED
from harness.contract.references import pointer_of
from harness.contract.rules import literals

__all__ = ["UNDECIDED", "Finding", "Severity", "clause_place", "error", "lint", "undecided"]

UNDECIDED = "undecided"
"""The rule of the finding for an undecided contract."""

_SIZES = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const", "enum", *_SIZES)
_TARGET = """add 'target', such as {"type": "cpu"}, {"type": "cuda"} or {"device": "NVIDIA GB10"}"""
_MANY = 100_000
"""An assumed length of a measured list: one number for each step of a long run."""


class Severity(StrEnum):
    """An error refuses the contract. A warning is for its author to consider."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding(JsonDataclass):
    """One result of lint."""

    rule: str
    """The rule, such as "clause-unviolable"."""
    severity: Severity
    pointer: str
    """A JSON pointer into the contract."""
    message: str
    remedy: str
    example: JsonObject | None = None
    """Measurements that show the finding; None if there are none."""


def lint(contract: Contract, search: Sequence[Path] = ()) -> list[Finding]:
    """Return the findings on a contract, in a fixed order. `harness.tools.search.lint` checks satisfiability.

    Args:
        search: the import roots of the project, whose code is searched for TODO markers.
    """
    findings = [*_about_the_whole(contract), *_about_what_to_write(contract, search), *_about_thresholds(contract)]
    findings += _about_what_is_read_back(contract, search)
    return [*findings, *_about_emptiness(contract), *_about_lengths(contract), *_about_division(contract)]


def undecided(why: str) -> Finding:
    """Return the finding that it is undecided whether a contract can be satisfied and refuted."""
    message = f"whether the contract can hold and can fail is undecided: {why}"
    return warning(
        UNDECIDED, "", message, "make lists shorter and rules simpler, or add 'examples' that satisfy the contract"
    )


def _about_the_whole(contract: Contract) -> Iterator[Finding]:
    for problem in credentials(contract):
        yield error("secret", problem.pointer, problem.message, problem.remedy)
    if "full" not in contract.profiles:
        yield warning("full-profile-missing", "/profiles", "no profile does the claim's whole work", "add 'full'")
    if not contract.target:
        yield warning("target-absent", "", "the claim names no hardware, so it is never DISCHARGED", _TARGET)
    if re.search(r"\b(any|cpu)\b", contract.target.get("device", ""), re.IGNORECASE):
        message = f"no device has the name {contract.target['device']!r}, so the claim is never DISCHARGED"
        yield error("target-unnamed", "/target/device", message, "for any CPU, write 'type': 'cpu' instead")
    reduced = contract.profiles.get("reduced")
    needs_cuda = [mutant.requires.get("device") == "cuda" for mutant in contract.mutants]
    if reduced is not None and reduced.requires["device"] == "any" and all(needs_cuda):
        message = "every mutant needs CUDA, so the reduced profile proves nothing on a host without it"
        yield warning("mutants-need-cuda", "/mutants", message, "add a mutant that runs anywhere")
    for place, run_kind, unjudged in (
        ("/profiles/reduced/omits", "the reduced profile", contract.unjudged("reduced")),
        ("/outside_omits", "a subject outside the process", contract.unjudged("", hidden=contract.outside_omits)),
    ):
        if unjudged and all(set(unjudged).intersection(mutant.violates) for mutant in contract.mutants):
            message = f"every mutant violates a clause that {run_kind} does not judge, so none proves anything there"
            yield error("mutants-omitted", place, message, "add a mutant that violates other clauses")


def _about_what_to_write(contract: Contract, search: Sequence[Path]) -> Iterator[Finding]:
    """Find TODO markers of `harness new`. Until they are replaced, a run writes no bundle."""
    for place, text in unwritten_texts(contract.document):
        yield warning("text-to-do", place, f"{text!r} is not written yet", "write this text")
    keys = {"falsifier": contract.falsifier, "subject": contract.subject}
    for entry, path, line in unwritten_code(contract, search):
        place = next((f"/{key}" for key, value in keys.items() if value == entry), "/mutants")
        message = f"{entry} is not written yet: {path}:{line}"
        yield warning("code-to-do", place, message, "write the code, and say in its docstring what it does")


def _about_what_is_read_back(contract: Contract, search: Sequence[Path]) -> Iterator[Finding]:
    """Find parameters that the judge compares with resolved values, but that the falsifier never reads back."""
    profiles = contract.profiles.values()
    requested = [(profile.name, name) for profile in profiles for name in RESOLVED if name in profile.parameters]
    is_written = not any(entry == contract.falsifier for entry, *_ in unwritten_code(contract, search))
    files = imported_files(contract.falsifier, tuple(search)) if requested and is_written else ()
    read_back = {name for path in files for name in _read_back(path)}
    for profile, name in requested if files and None not in read_back else ():
        if name not in read_back:
            message = f"the parameter {name} adds the clause resolved.{name}, and nothing reads back what ran"
            remedy = f"call trial.resolve({name}=…) with what ran, or give the parameter another name"
            yield warning("parameter-not-read-back", pointer("profiles", profile, "parameters", name), message, remedy)


def _read_back(path: Path) -> Iterator[str | None]:
    """Yield the names of the arguments of each call of `resolve` in a source file; None for arguments in a mapping."""
    try:
        text = regular_file.read(path)
        tree = ast.parse(text) if b".resolve(" in text else ast.Module([], [])
    except (OSError, ValueError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "resolve":
            yield from (keyword.arg for keyword in node.keywords)


def _about_thresholds(contract: Contract) -> Iterator[Finding]:
    """Find thresholds without a source or a unit. Whole numbers, and sizes of lists and texts, need no unit."""
    whole = {path for path, schema in nodes(contract.observation) if schema.get("type") == "integer"}
    for clause in contract.clauses:
        trivial = (0, 1) if clause.keyword in _SIZES else (0,)
        if clause.keyword in _BOUNDS and any(number not in trivial for number in _numbers(clause.argument)):
            if not clause.source.strip():
                yield _without_source(clause_place(contract, clause), f"the bound of {clause.id}", "x-source")
            needs_unit = clause.keyword not in (*_SIZES, "const", "enum") and clause.path not in whole
            if needs_unit and not clause.unit.strip():
                message = f"the bound of {clause.id} has no unit"
                remedy = "add 'x-unit', such as s, B or nats; write ratio for a number without a dimension"
                yield warning("threshold-without-unit", clause_place(contract, clause), message, remedy)
    for index, rule in enumerate(contract.rules):
        named = [number for number in literals(rule.tree) if number not in (0, 1)]
        if named and not rule.source.strip():
            yield _without_source(pointer("rules", index, "rule"), f"the number {named[0]:g}", "source")


def _without_source(place: str, what: str, key: str) -> Finding:
    remedy = f"add '{key}': the page, paper, issue or measurement that the threshold is from"
    return error("threshold-without-source", place, f"{what} has no source", remedy)


def _about_lengths(contract: Contract) -> Iterator[Finding]:
    """Find rules that would be NOT_MEASURED on a long list, because the contract declares no maximum length."""
    left = Allowance(len(contract.mutants)).left
    shapes = largest_shapes(contract, _MANY)
    for index, rule in enumerate(contract.rules):
        if rule.cost(shapes) > left:
            place = rule.largest(shapes)
            message = f"a long list in {place} makes the rule too costly to judge, and it is then NOT_MEASURED"
            remedy = f"add 'maxItems' to {place}, or compute in the falsifier what the rule computes"
            yield warning("rule-length-unbounded", pointer("rules", index, "rule"), message, remedy)


def _about_emptiness(contract: Contract) -> Iterator[Finding]:
    for path, schema in nodes(contract.observation):
        place = pointer_of(contract.document["observation"], "observation", path)
        if schema.get("type") == "array" and not schema.get("minItems") and schema.get("maxItems") != 0:
            message = f"{_named(path)} can be an empty list, which proves nothing"
            remedy = (
                "add 'minItems', or 'maxItems': 0 if it must be empty; if the length matters, measure it as a number; "
                "if the reduced profile does not measure it, add it to 'omits' there"
            )
            yield error("array-may-be-empty", place, message, remedy)
        may_be_empty = not schema.get("minProperties") and schema.get("maxProperties") != 0
        closed = "properties" in schema or "additionalProperties" in schema
        if schema.get("type") == "object" and not closed and may_be_empty:
            message = f"{_named(path)} can be an empty map, which proves nothing"
            yield error("map-may-be-empty", place, message, "add 'additionalProperties' or 'minProperties'")


def _about_division(contract: Contract) -> Iterator[Finding]:
    for index, rule in enumerate(contract.rules):
        for node in rule.tree.walk():
            if node.kind is not NodeKind.OPERATOR or node.text != "/" or _is_nonzero(contract, node.children[1]):
                continue
            denominator = rule.text[node.children[1].start : node.children[1].end]
            yield error(
                "division-by-measurement-that-may-be-zero",
                pointer("rules", index, "rule"),
                f"{denominator} can be zero, and a comparison with infinity or NaN proves nothing",
                "multiply instead (self.a < 1.05 * self.b), or add 'exclusiveMinimum': 0 to the measurement",
            )


def _is_nonzero(contract: Contract, denominator: Node) -> bool:
    """Whether the contract excludes 0 for a denominator: a number, a parameter, a measurement or the size of one."""
    if denominator.kind is NodeKind.NUMBER:
        return literals(denominator) != [0.0]
    counted = denominator.kind is NodeKind.FUNCTION and denominator.text == "double"
    if counted:
        (denominator,) = denominator.children
        if denominator.kind is not NodeKind.FUNCTION or denominator.text != "size" or len(denominator.children) != 1:
            return False
        (denominator,) = denominator.children
    path: list[str] = []
    while denominator.kind is NodeKind.SELECT:
        path.insert(0, denominator.text)
        (denominator,) = denominator.children
    variable = denominator.text if denominator.kind is NodeKind.NAME else ""
    if variable == "parameters" and not counted:
        return all(_is_nonzero_number(profile.parameters.get(path[0])) for profile in contract.profiles.values())
    if variable != "self":
        return False
    schema: JsonObject = contract.observation
    for step in path:
        schema = schema.get("properties", {}).get(step, {})
    if counted:
        return bool(schema.get("minItems", schema.get("minProperties", 0)) > 0)
    return (
        schema.get("exclusiveMinimum", -1) >= 0
        or schema.get("minimum", 0) > 0
        or schema.get("exclusiveMaximum", 1) <= 0
        or schema.get("maximum", 0) < 0
        or _is_nonzero_number(schema.get("const"))
    )


def clause_place(contract: Contract, clause: Clause) -> str:
    """Return the place of a clause in the contract as written: a JSON pointer."""
    if isinstance(clause, SchemaClause):
        return pointer_of(contract.document["observation"], "observation", clause.path, clause.keyword)
    return pointer("rules", [rule.id for rule in contract.rules].index(clause.id), "rule")


def _numbers(value: Any) -> Iterator[float]:
    if is_number(value):
        yield value
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)


def _is_nonzero_number(value: Any) -> bool:
    return is_number(value) and value != 0


def _named(path: tuple[str, ...]) -> str:
    return "".join(step if step in (ITEM, VALUE) else f".{step}" for step in path).lstrip(".")


def error(rule: str, place: str, message: str, remedy: str, example: JsonObject | None = None) -> Finding:
    """Return a finding that refuses the contract."""
    return Finding(rule, Severity.ERROR, place, message, remedy, example)


def warning(rule: str, place: str, message: str, remedy: str, example: JsonObject | None = None) -> Finding:
    return Finding(rule, Severity.WARNING, place, message, remedy, example)

"""Loads contracts, and refuses one that could pass by accident.

A contract can come from an untrusted source. Loading one runs none of its code: entry points are located in source
text, references stay inside the file, and regular expressions run in linear time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base import regular_file, schemas, strictjson
from harness.base.schemas import Problem
from harness.base.strictjson import JsonObject, pointer
from harness.contract.calibration import calibration_of
from harness.contract.claim_folder import CONTRACT, NOTES, claim_of
from harness.contract.clauses import SchemaClause, clauses_of, nodes
from harness.contract.consistency import contradictions
from harness.contract.contract_annotations import Refutation, judging_part
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.keywords import PatternError
from harness.contract.model import Contract, ContractError, Mutant, Parameters, Profile
from harness.contract.patch import Patch
from harness.contract.references import inline, pointer_of
from harness.contract.rules import Rule, RuleError, compile_rule

_LARGEST = 1 << 20
"""Maximum bytes of a contract. The largest of this project has 22 thousand."""

__all__ = ["load", "notes_at", "parse"]


def load(path: Path, search: tuple[Path, ...]) -> Contract:
    """Load a contract. Its entry points must be in the folders `search`, the project's import roots.

    Raises:
        ContractError: with every problem.
    """
    try:
        content = regular_file.read(path, _LARGEST)
        document = strictjson.loads(content)
    except OSError as error:
        raise ContractError(path, [Problem("", f"cannot be read: {error.strerror}", "name a readable file")]) from error
    except strictjson.JsonError as error:
        raise ContractError(path, [*error.problems]) from error
    contract = parse(document, path, content)
    problems = list(_entry_point_problems(document, search))
    if path.name != CONTRACT:
        place = f"{contract.id}/{CONTRACT}"
        problems.append(
            Problem("", f"{path.name} has the contract of {contract.id}", f"harness fmt moves it to {place}")
        )
    elif claim_of(path) != contract.id:
        message = f"{contract.id} is in the folder {claim_of(path)}"
        problems.append(Problem("/id", message, f"name the folder {contract.id}"))
    calibration, calibration_problems = calibration_of(path, document.get("calibration"))
    contract = replace(contract, calibration=calibration, notes=notes_at(path.with_name(NOTES)))
    problems += calibration_problems
    if problems:
        raise ContractError(path, problems)
    return contract


def parse(document: Any, path: Path, content: bytes) -> Contract:
    """Build a contract from parsed JSON alone, as `harness verify` does with a bundle's copy.

    Raises:
        ContractError: with every problem, except those of entry points.
    """
    try:
        problems = schemas.problems("contract", document)
    except RecursionError as error:
        raise ContractError(path, [Problem("", "nested too deeply", "write a flatter observation")]) from error
    if problems:
        raise ContractError(path, problems)
    observation, clauses, problems = _described(document, "observation")
    rules, wrong = _rules(document)
    parameters, unfit = _parameters(document)
    variants: JsonObject = document.get("variants", {})
    unfit += [
        Problem(pointer("mutants", index, "variant"), f"no variant is called {mutant['variant']}", "see /variants")
        for index, mutant in enumerate(document["mutants"])
        if "variant" in mutant and mutant["variant"] not in variants
    ]
    if problems or wrong or unfit:
        raise ContractError(path, [*problems, *wrong, *unfit])
    contract = Contract(
        path=path,
        digest=hashlib.sha256(judging_part(content)).hexdigest(),
        content=content,
        document=document,
        **{key: document[key] for key in ("id", "issue", "spec", "title", "claim", "falsifier", "subject")},
        target=document.get("target", {}),
        parameters=parameters,
        profiles={
            name: _profile(name, profile, document.get("lease")) for name, profile in document["profiles"].items()
        },
        observation=observation,
        clauses=clauses,
        rules=rules,
        mutants=tuple(
            _mutant({**variants.get(mutant.get("variant"), {}), **mutant}, document["subject"])
            for mutant in document["mutants"]
        ),
        outside_omits=frozenset(document.get("outside_omits", ())),
        stands_in_for=document.get("stands_in_for", ""),
        refuted=tuple(Refutation.from_json(refutation) for refutation in document.get("refuted", ())),
    )
    problems = list(contradictions(contract))
    if problems:
        raise ContractError(path, problems)
    return contract


def notes_at(path: Path) -> str:
    """Return the text of a notes file; empty if it cannot be read."""
    try:
        return regular_file.read(path).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _profile(name: str, document: JsonObject, lease: str | None) -> Profile:
    limits = document["limits"]
    return Profile(
        name,
        document["requires"],
        document["parameters"],
        limits["seconds"],
        limits.get("lease_seconds", 3600.0),
        frozenset(document.get("omits", ())),
        document.get("step"),
        document.get("lease", lease) == "exclusive",
        limits.get("claimed", False),
    )


def _mutant(document: JsonObject, reference: str) -> Mutant:
    subject = document.get("subject", reference)
    return Mutant(
        document["id"],
        subject,
        tuple(document["violates"]),
        document["defect"],
        document.get("requires", {}),
        document.get("parameters", {}),
        document.get("memory_gib", math.inf),
        document.get("lease") == "shared",
        tuple(
            Patch(patch.get("module", subject.partition(":")[0]), patch["within"], patch["before"], patch["after"])
            for patch in document.get("patches", ())
        ),
        document.get("of_any_subject", False),
    )


def _described(document: JsonObject, key: str) -> tuple[JsonObject, tuple[SchemaClause, ...], list[Problem]]:
    """Return the schema at a key of the contract with references resolved, its clauses, and its problems."""
    schema, problems = inline(document[key], key)
    if problems:
        return schema, (), problems
    clauses: tuple[SchemaClause, ...] = ()
    try:
        clauses = tuple(clauses_of(schema))
    except PatternError as error:
        where = pointer_of(document[key], key, error.path, "pattern")
        problems.append(Problem(where, str(error), "use no look-around and no back-reference, or repeat less"))
    typed = {"type", "const", "enum"}
    for path in [path for path, node in nodes(schema) if typed.isdisjoint(node)]:
        where = pointer_of(document[key], key, path)
        problems.append(Problem(where, "accepts a value of any type", "add 'type' (or 'const' or 'enum')"))
    return schema, clauses, problems


def _parameters(document: JsonObject) -> tuple[Parameters | None, list[Problem]]:
    if "parameters" not in document:
        return None, []
    schema, clauses, problems = _described(document, "parameters")
    chosen = [profile["parameters"].items() for profile in document["profiles"].values()]
    optional = frozenset(name for items in chosen for name, value in items if value is None)
    return Parameters(schema, clauses, optional), problems


def _rules(document: JsonObject) -> tuple[tuple[Rule, ...], list[Problem]]:
    problems: list[Problem] = []
    rules: list[Rule] = []
    for index, rule in enumerate(document.get("rules", [])):
        try:
            rules.append(compile_rule(rule["id"], rule["rule"], rule["message"], rule.get("source", "")))
        except RuleError as error:
            problems.append(
                Problem(pointer("rules", index, "rule"), str(error), "see https://cel.dev for the language")
            )
    return tuple(rules), problems


def _entry_point_problems(document: JsonObject, search: tuple[Path, ...]) -> Iterator[Problem]:
    places: list[tuple[str, str]] = [("/falsifier", document["falsifier"]), ("/subject", document["subject"])]
    places += [
        (pointer("mutants", index, "subject"), mutant["subject"])
        for index, mutant in enumerate(document["mutants"])
        if "subject" in mutant
    ]
    places += [
        (pointer("profiles", name, "step"), profile["step"])
        for name, profile in document["profiles"].items()
        if "step" in profile
    ]
    for where, text in places:
        try:
            locate(text, search)
        except EntryPointError as error:
            yield Problem(where, str(error), error.remedy)

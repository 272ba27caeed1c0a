"""Checks that the parts of a contract agree: ids, parameters, clauses, and the names that rules read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.base import near, regular_file, strictjson
from harness.base.redaction import redactor
from harness.base.schemas import Problem
from harness.base.strictjson import pointer
from harness.contract.cost import ITEMS, Allowance, Shape, of_schema, of_values
from harness.contract.entry_point import EntryPointError, locate
from harness.contract.model import DEVICE_FIELDS, Contract
from harness.contract.references import pointer_of

__all__ = ["contradictions", "credentials", "largest_shapes", "unwritten_code", "unwritten_texts"]

_DOCSTRING = re.compile(r'^[ ]*"""TODO\b', re.MULTILINE)
_MOST_COSTLY = 5
"""Maximum number of costly clauses that a problem names."""


def contradictions(contract: Contract) -> Iterator[Problem]:
    """Yield the inconsistencies of a well-formed contract."""
    for check in (
        _repeated_ids, _target_problems, _omission_problems, _name_problems, _parameter_problems, _rule_problems,
        _mutant_problems, _refutation_problems, _cost_problems,
    ):  # fmt: skip
        yield from check(contract)


def credentials(contract: Contract) -> Iterator[Problem]:
    """Yield texts of a contract that contain a secret. A bundle has an unmasked copy of the contract."""
    for place in redactor().credentials(contract.document):
        yield Problem(place, "holds what looks like a secret", "remove it; each bundle has a copy of the contract")


def _repeated_ids(contract: Contract) -> Iterator[Problem]:
    for kind in ("rules", "mutants"):
        ids = [item["id"] for item in contract.document.get(kind, ())]
        for index, name in enumerate(ids):
            if name in ids[:index]:
                yield Problem(pointer(kind, index, "id"), f"the id {name!r} occurs twice", "give each its own")


def _parameter_problems(contract: Contract) -> Iterator[Problem]:
    """Yield parameters of profiles that the contract does not allow. Those of a mutant may be out of bounds."""
    declared = contract.parameters
    if declared is None:
        return
    for profile in contract.profiles.values():
        where = pointer("profiles", profile.name, "parameters")
        for name in profile.parameters:
            if name not in declared.names:
                remedy = "declare it in parameters.properties, or remove it"
                yield Problem(where + pointer(name), f"{name!r} is not declared", remedy)
        for name in declared.names:
            if name not in profile.parameters:
                yield Problem(where, f"lacks {name!r}, which the contract declares", "set it in every profile")
        for clause in declared.violations(profile.parameters):
            name = clause.path[0]
            value = strictjson.dumps(profile.parameters[name])
            yield Problem(where + pointer(name), f"{value} violates {clause.bound}", "see parameters of the contract")


def _refutation_problems(contract: Contract) -> Iterator[Problem]:
    for index, refutation in enumerate(contract.refuted):
        for position, clause in enumerate(refutation.clauses):
            if clause not in contract.clause_ids:
                where = pointer("refuted", index, "clauses", position)
                yield Problem(where, f"the contract has no clause {clause!r}", "`harness show ID` lists the clauses")
        if refutation.profile not in contract.profiles:
            where = pointer("refuted", index, "profile")
            yield Problem(where, f"the contract has no profile {refutation.profile!r}", "name one of its profiles")


def _target_problems(contract: Contract) -> Iterator[Problem]:
    if contract.target.get("type") != "cpu":
        return
    if "compute_capability" in contract.target:
        yield Problem("/target", "a CPU has no compute capability", "write 'type': 'cuda', or remove one of them")
    if "full" in contract.profiles and contract.profiles["full"].requires["device"] == "cuda":
        yield Problem("/target/type", "the full profile requires CUDA, so it never runs on the target", "write 'cuda'")


def _name_problems(contract: Contract) -> Iterator[Problem]:
    """Yield undeclared measurements that an example or a list of omissions names."""
    examples = contract.document["observation"].get("examples", ())
    named = []
    for index, example in enumerate(examples):
        named += [(pointer("observation", "examples", index, name), name) for name in example]
    for profile in contract.profiles.values():
        named += [(pointer("profiles", profile.name, "omits"), omitted) for omitted in sorted(profile.omits)]
    named += [("/outside_omits", omitted) for omitted in sorted(contract.outside_omits)]
    known = sorted(contract.measurements)
    for where, name in named:
        if name not in contract.measurements:
            remedy = near.hint(name, known, f"declared there: {', '.join(known)}")
            yield Problem(where, f"{name!r} is not in the observation", remedy)


def _omission_problems(contract: Contract) -> Iterator[Problem]:
    clauses = len(contract.clauses) + len(contract.rules)
    for profile in contract.profiles.values():
        where = pointer("profiles", profile.name, "omits")
        if profile.omits and profile.name == "full":
            yield Problem(where, "the full profile must measure the whole claim", "remove 'omits' there")
        if len(contract.unjudged(profile.name)) == clauses:
            yield Problem(where, "the profile omits every clause", "omit less, or remove the profile")
    if contract.outside_omits >= contract.measurements:
        yield Problem("/outside_omits", "no measurement is left to judge", "omit less, or remove it")


def _rule_problems(contract: Contract) -> Iterator[Problem]:
    for index, rule in enumerate(contract.rules):
        where = pointer("rules", index, "rule")
        for path in rule.names["self"]:
            node: Any = contract.observation
            for step in path:
                properties = node.get("properties", {})
                if step not in properties:
                    known = ", ".join(sorted(properties)) or "nothing"
                    remedy = near.hint(step, properties, f"declared there: {known}")
                    yield Problem(where, f"self.{'.'.join(path)} is not in the observation", remedy)
                    break
                node = properties[step]
        for path in rule.names["parameters"]:
            lacking = [name for name, profile in contract.profiles.items() if path[0] not in profile.parameters]
            if lacking:
                yield Problem(where, f"parameters.{path[0]} is not in profile {lacking[0]}", "add it to every profile")
        for path in rule.names["device"]:
            if path[0] not in DEVICE_FIELDS:
                yield Problem(where, f"device.{path[0]} does not exist", f"known: {', '.join(DEVICE_FIELDS)}")


def _mutant_problems(contract: Contract) -> Iterator[Problem]:
    known = contract.clause_ids
    parameters = {name for profile in contract.profiles.values() for name in profile.parameters}
    for index, mutant in enumerate(contract.mutants):
        where = pointer("mutants", index)
        for position, clause in enumerate(mutant.violates):
            if clause not in known:
                message = f"{clause!r} is not a clause of this contract"
                remedy = near.hint(clause, sorted(known), f"clauses: {', '.join(sorted(known))}")
                yield Problem(f"{where}/violates/{position}", message, remedy)
        for name in mutant.parameters:
            if name not in parameters:
                yield Problem(where + pointer("parameters", name), f"no profile has a parameter {name!r}", "remove it")
        if mutant.subject == contract.subject and not mutant.parameters and not mutant.patches:
            remedy = "write patches, or name a subject with the defect"
            yield Problem(f"{where}/subject", "is the subject itself, unchanged", remedy)


def _cost_problems(contract: Contract) -> Iterator[Problem]:
    """Yield the costliest clauses, if an observation within the contract's limits can exceed a trial's allowance."""
    shapes = largest_shapes(contract)
    costs = [
        (rule.cost(shapes), pointer("rules", index, "rule"), rule.largest(shapes))
        for index, rule in enumerate(contract.rules)
    ]
    written = contract.document["observation"]
    for clause in contract.clauses:
        where = pointer_of(written, "observation", clause.path, clause.keyword)
        costs.append((clause.cost(shapes["self"][clause.path[0]]), where, f"self.{clause.path[0]}"))
    left = Allowance(len(contract.mutants)).left
    total = sum(cost for cost, *_ in costs)
    for cost, where, largest in sorted(costs, reverse=True)[:_MOST_COSTLY]:
        if total <= left:
            return
        total -= cost
        message = f"can take {cost:,} steps; all clauses of one trial may take {left:,}"
        yield Problem(where, message, f"lower maxItems, maxProperties or maxLength of {largest}, or measure less")


def largest_shapes(contract: Contract, assumed: int = ITEMS) -> dict[str, dict[str, Shape]]:
    """Return the largest shape of each value that a rule can read.

    Args:
        assumed: the length of a list or map without a declared maximum.
    """
    properties = contract.observation["properties"]
    return {
        "self": {name: of_schema(schema, assumed) for name, schema in properties.items()},
        "parameters": of_values([profile.parameters for profile in contract.profiles.values()]),
        "device": {},
    }


def unwritten_texts(value: Any, *place: str | int) -> Iterator[tuple[str, str]]:
    """Yield placeholder texts of a contract's document (TODO), each with its JSON pointer."""
    if isinstance(value, str) and value.lstrip().startswith("TODO"):
        yield pointer(*place), value
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unwritten_texts(item, *place, key)


def unwritten_code(contract: Contract, search: Sequence[Path]) -> Iterator[tuple[str, Path, int]]:
    """Yield the first placeholder docstring (TODO) of each module of a contract: entry point, file and line."""
    reported: set[Path] = set()
    for entry in contract.entry_points:
        try:
            path = locate(entry, tuple(search))
            text = regular_file.read(path).decode("utf-8", "replace")
        except (EntryPointError, OSError, ValueError):
            continue
        if path not in reported and (match := _DOCSTRING.search(text)):
            reported.add(path)
            yield entry, path, text.count("\n", 0, match.start()) + 1

"""Whether the parts of a contract fit together: ids, parameters, clauses, and the names that rules read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.base import strictjson
from harness.base.redaction import redactor
from harness.base.schemas import Problem
from harness.base.strictjson import pointer
from harness.contract.cost import ITEMS, Allowance, Shape, of_schema, of_values
from harness.contract.model import DEVICE_FIELDS, Contract
from harness.contract.ratio import has_ratio
from harness.contract.references import pointer_of

__all__ = ["contradictions", "credentials", "largest_shapes", "miscalibrated"]

_MOST_COSTLY = 5
"""How many clauses that cost too much are named."""


def contradictions(contract: Contract) -> Iterator[Problem]:
    """Every part of a well-formed contract that does not fit the rest of it."""
    yield from _repeated_ids(contract)
    yield from _target_problems(contract)
    yield from _example_problems(contract)
    yield from _omission_problems(contract)
    yield from _parameter_problems(contract)
    yield from _rule_problems(contract)
    yield from _mutant_problems(contract)
    yield from _refutation_problems(contract)
    yield from _cost_problems(contract)


def credentials(contract: Contract) -> Iterator[Problem]:
    """Every text of a contract that holds a secret. A bundle has a copy of the contract, which no mask may change."""
    for place in redactor().credentials(contract.document):
        yield Problem(place, "holds what looks like a secret", "remove it; each bundle has a copy of the contract")


def _repeated_ids(contract: Contract) -> Iterator[Problem]:
    for kind, ids in (
        ("rules", [rule.id for rule in contract.rules]),
        ("mutants", [mutant.id for mutant in contract.mutants]),
    ):
        for index, name in enumerate(ids):
            if name in ids[:index]:
                yield Problem(pointer(kind, index, "id"), f"the id {name!r} occurs twice", "give each its own")


def _parameter_problems(contract: Contract) -> Iterator[Problem]:
    """Parameters of profiles that the contract does not allow. A mutant's may be out of bounds: as its defect."""
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
            given = strictjson.dumps(profile.parameters[name])
            yield Problem(where + pointer(name), f"{given} violates {clause.bound}", "see parameters of the contract")


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


def _example_problems(contract: Contract) -> Iterator[Problem]:
    known = contract.measurements
    for index, example in enumerate(contract.document["observation"].get("examples", ())):
        for name in example:
            if name not in known:
                where = pointer("observation", "examples", index, name)
                yield Problem(
                    where, f"{name!r} is not in the observation", f"declared there: {', '.join(sorted(known))}"
                )


def _omission_problems(contract: Contract) -> Iterator[Problem]:
    clauses = len(contract.clauses) + len(contract.rules)
    for profile in contract.profiles.values():
        where = pointer("profiles", profile.name, "omits")
        if profile.omits and profile.name == "full":
            yield Problem(where, "the full profile must measure the whole claim", "remove 'omits' there")
        for name in sorted(profile.omits - contract.measurements):
            known = ", ".join(sorted(contract.measurements))
            yield Problem(where, f"{name!r} is not in the observation", f"declared there: {known}")
        if len(contract.unjudged(profile.name)) == clauses:
            yield Problem(where, "the profile omits every clause", "omit less, or remove the profile")
    for name in sorted(contract.outside_omits - contract.measurements):
        known = ", ".join(sorted(contract.measurements))
        yield Problem("/outside_omits", f"{name!r} is not in the observation", f"declared there: {known}")
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
                    yield Problem(where, f"self.{'.'.join(path)} is not in the observation", f"declared there: {known}")
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
        for position, clause in enumerate(mutant.violates):
            if clause not in known:
                yield Problem(
                    pointer("mutants", index, "violates", position),
                    f"{clause!r} is not a clause of this contract",
                    f"clauses: {', '.join(sorted(known))}",
                )
        for name in mutant.parameters:
            if name not in parameters:
                yield Problem(
                    pointer("mutants", index, "parameters", name), f"no profile has a parameter {name!r}", "remove it"
                )
        if mutant.subject == contract.subject and not mutant.parameters and not mutant.patches:
            yield Problem(
                pointer("mutants", index, "subject"),
                "is the subject itself, unchanged",
                "write patches, or name a subject with the defect",
            )


def _cost_problems(contract: Contract) -> Iterator[Problem]:
    """The costliest clauses, if an observation within the contract's sizes can cost more than a trial's allowance."""
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
    """The largest shape of each value that a rule can read.

    Args:
        assumed: the length of a list or map for which the contract declares no greatest length.
    """
    properties = contract.observation["properties"]
    return {
        "self": {name: of_schema(schema, assumed) for name, schema in properties.items()},
        "parameters": of_values([profile.parameters for profile in contract.profiles.values()]),
        "device": {},
    }


def miscalibrated(contract: Contract) -> Iterator[Problem]:
    """Every part of a contract's calibration that does not fit the contract."""
    if contract.calibration is None:
        return
    comparable = frozenset(clause.id for clause in (*contract.clauses, *contract.rules) if has_ratio(clause))
    violated = {mutant.id: mutant.violates for mutant in contract.mutants}
    for profile, measured in contract.calibration.profiles.items():
        if profile not in contract.profiles:
            yield _outdated(pointer("profiles", profile), f"there is no profile {profile!r}")
            continue
        for mutant, ratios in measured["mutants"].items():
            if mutant not in violated:
                yield _outdated(pointer("profiles", profile, "mutants", mutant), f"there is no mutant {mutant!r}")
                continue
            for clause in ratios:
                where = pointer("profiles", profile, "mutants", mutant, clause)
                if clause in contract.unjudged(profile):
                    yield _outdated(where, f"the {profile} profile does not judge {clause!r}")
                elif clause not in violated[mutant]:
                    yield _outdated(where, f"{clause!r} is not a clause that this mutant must violate")
                elif clause not in comparable:
                    yield _outdated(where, f"{clause!r} has no threshold for a ratio")


def _outdated(where: str, message: str) -> Problem:
    return Problem(f"/calibration{where}", message, "remove the calibration, and run harness calibrate ID --write")

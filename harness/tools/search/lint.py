"""Whether a contract can hold and can fail: rules that raise, contracts that no observation satisfies, idle clauses."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.contract import Contract, Profile
from harness.contract.clauses import Clause
from harness.contract.expression import Node, NodeKind
from harness.contract.project import Project
from harness.contract.reasons import Reason, ReasonCode
from harness.contract.rules import BROKEN, Rule
from harness.lint.linter import Finding, clause_place, error, undecided
from harness.tools.search.witnesses import Search, Undecided, prepare, without_traces

__all__ = ["about_both_ways"]

_ARITHMETIC = frozenset("+-*/%")

prepare()  # the command loads this module before it forks


def about_both_ways(contract: Contract, project: Project | None = None) -> list[Finding]:
    """Search for an observation that satisfies the contract and, for each clause, for one that violates it."""
    unique: dict[tuple[str, str], Finding] = {}
    with without_traces():
        try:
            for finding in _found(contract):  # a finding in both profiles is listed once
                unique.setdefault((finding.rule, finding.pointer), finding)
        except Undecided as reason:
            return [*unique.values(), undecided(str(reason))]
    return [*unique.values()]


def _found(contract: Contract) -> Iterator[Finding]:
    for profile in _different_profiles(contract):
        search = Search(contract, profile)
        base = search.satisfying()
        while broken := _broken_rules(search, base):
            for rule, reason in broken:
                yield _about_broken(contract, rule, reason, base)
            search = Search(contract, profile, search.without | {rule.id for rule, _ in broken})
            base = search.satisfying()
        unsatisfied = search.unsatisfied(base)
        if unsatisfied:
            yield error(
                "contract-unsatisfiable",
                _place_of(contract, unsatisfied[0].id),
                f"no observation satisfies the contract ({profile.name}); the nearest of {search.judged} fails "
                + "; ".join(f"{result.id}: {result.reason}" for result in unsatisfied[:4]),
                "loosen one of these clauses, or add 'examples' that satisfy them all",
                base,
            )
            continue
        for clause in search.clauses:
            violation = search.violating(clause, base)
            place = clause_place(contract, clause)
            if violation.example is None:
                yield error(
                    "clause-unviolable",
                    place,
                    f"{clause.id} cannot fail ({profile.name}): no observation that lint tried violates {clause.bound}",
                    "tighten it, or remove it: a clause that cannot fail proves nothing",
                    base,
                )
            elif violation.reason and isinstance(clause, Rule):
                yield _about_broken(contract, clause, violation.reason, violation.example)


def _different_profiles(contract: Contract) -> list[Profile]:
    """One profile for each different set of the values that clauses read."""
    read = sorted({path[0] for rule in contract.rules for path in rule.names["parameters"]})
    different: dict[str, Profile] = {}
    for profile in contract.profiles.values():
        seen = [sorted(profile.omits), *(profile.parameters[name] for name in read)]
        if any(rule.names["device"] for rule in contract.rules):
            seen.append(profile.requires)
        different.setdefault(strictjson.dumps(seen), profile)
    return list(different.values())


def _broken_rules(search: Search, base: JsonObject) -> list[tuple[Rule, Reason]]:
    """The rules that raise or return no boolean although every schema clause holds."""
    reasons = {result.id: result.reason for result in search.unsatisfied(base)}
    if any(clause.id in reasons for clause in search.contract.clauses):
        return []
    rules = [(rule, reasons.get(rule.id)) for rule in search.contract.rules]
    return [(rule, reason) for rule, reason in rules if reason is not None and reason.code in BROKEN]


def _about_broken(contract: Contract, rule: Rule, reason: Reason, example: JsonObject) -> Finding:
    place = clause_place(contract, rule)
    if reason.code is ReasonCode.NOT_BOOLEAN:
        message = f"the rule gives neither true nor false: {reason.text}"
        return error("rule-not-boolean", place, message, "write a comparison: self.a < self.b", example)
    message = f"the rule cannot be evaluated: {reason.text}"
    integer = _integer_in_arithmetic(rule.tree)
    if integer:
        remedy = f"write {integer}.0: measurements are doubles, and CEL does not mix doubles with integers"
        return error("integer-literal-in-rule", place, f"{integer} is an integer: {message}", remedy, example)
    return error("rule-cannot-be-evaluated", place, message, "see https://cel.dev for the language", example)


def _integer_in_arithmetic(tree: Node) -> str:
    """The first integer literal in a rule's arithmetic; empty if there is none."""
    for node in tree.walk():
        if node.kind is NodeKind.OPERATOR and node.text in _ARITHMETIC:
            for child in node.children:
                if child.kind is NodeKind.NUMBER and child.text.isdigit():
                    return child.text
    return ""


def _place_of(contract: Contract, clause_id: str) -> str:
    clauses: tuple[Clause, ...] = (*contract.clauses, *contract.rules)
    return next((clause_place(contract, clause) for clause in clauses if clause.id == clause_id), "/observation")

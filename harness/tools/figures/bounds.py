"""Whether the bounds of a contract are those of the figures that it names.

A bound differs from its figure if its value, its direction, its unit or what it is of differs. A bound whose source is
a document of the folder's figures.json must name a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from harness.base.strictjson import LARGEST, pointer
from harness.contract import Contract
from harness.contract.contract_annotations import FIGURES
from harness.lint.linter import Finding, Severity
from harness.tools.figures.figures import Figure, Figures, Relation, has_words
from harness.tools.figures.places import FigureUse, Place, Stated, place_of, uses_of
from harness.tools.figures.quantity import converted

__all__ = ["about_figures", "unused_figures"]

_ONE: Final = Fraction(1)


def about_figures(contract: Contract, figures: Figures | None) -> Iterator[Finding]:
    """Yield what is wrong with the figures that a contract names, and the bounds that name none.

    Args:
        figures: those of the contract's folder; None if it has no figures.json.
    """
    for key, uses in uses_of(contract.document).items():
        place = place_of(contract, key)
        if place is None:
            message = f"the contract has no number at {key!r}"
            yield _error("figure-place", key, message, "name a clause, `parameters.NAME`, `claim` or `mutants.ID`")
            continue
        for use in uses:
            yield from _about_use(key, place, use, figures)
    if figures is not None:
        yield from _about_unnamed(contract, figures)


def unused_figures(figures: Figures, contracts: Iterable[Contract]) -> Iterator[Finding]:
    """Yield the figures that no contract of the folder names."""
    used = {
        name
        for contract in contracts
        for uses in uses_of(contract.document).values()
        for use in uses
        for name in use.names
    }
    for name in figures.named:
        if name not in used:
            where = pointer("figures", name)
            message = "no contract of the folder names this figure"
            yield Finding("figure-unused", Severity.ERROR, where, message, "name it in 'figures' of one, or remove it")


def _about_use(key: str, place: Place, use: FigureUse, figures: Figures | None) -> Iterator[Finding]:
    named = {} if figures is None else figures.named
    unknown = [name for name in use.names if name not in named]
    if unknown or not use.names:
        message = f"{FIGURES} of this folder has no figure {unknown[0]!r}" if unknown else "names no figure"
        yield _error("figure-unknown", key, message, "add it there, or correct the name")
        return
    chosen = [named[name] for name in use.names]
    for figure in chosen:
        if not any(has_words(place.words, called) for called in figure.called):
            called = " or ".join(map(repr, figure.called))
            message = f"nothing there is called {called}, which is what {figure.name} is of"
            yield _error(
                "figure-label", key, message, "name the right figure, or say in 'called' how contracts call it"
            )
    if place.is_text:
        yield from _about_text(key, place, use, chosen)
        return
    if use.derivation != "tolerance" and bool(place.unit) == bool(use.unit):
        message = f"states its unit twice, as {place.unit!r} too" if use.unit else "states no unit"
        yield _error("figure-unit", key, message, "state it once, in 'x-unit' or in 'unit' beside the figure")
        return
    # A tolerance is a part of the value, whatever the unit.
    unit = chosen[0].unit if use.derivation == "tolerance" else place.unit or use.unit
    factors = {converted(_ONE, figure.unit, unit) for figure in chosen}
    factor = factors.pop()
    if factor is None or factors:
        message = f"the bound is in {unit!r}, and {chosen[0].name} in {chosen[0].unit!r}"
        yield _error("figure-unit", key, message, "the documentation lists the units that can be converted")
        return
    yield from _about_value(key, place, use, chosen, factor)


def _about_text(key: str, place: Place, use: FigureUse, chosen: list[Figure]) -> Iterator[Finding]:
    for figure in chosen:
        value = converted(figure.value, figure.unit, use.unit or figure.unit)
        if all(bound.low != value for bound in place.stated):
            message = f"the text does not have the number of {figure}"
            yield _error("figure-value", key, message, "correct the text, or name the right figure")


def _about_value(key: str, place: Place, use: FigureUse, chosen: list[Figure], factor: Fraction) -> Iterator[Finding]:
    value = sum((figure.value for figure in chosen), Fraction(0)) * factor
    within = sum((figure.within for figure in chosen), Fraction(0)) * factor
    names = " and ".join(map(str, chosen))
    if use.derivation == "side":
        if not any(bound.relation.holds(value, bound.low) for bound in place.stated):
            message = f"the figure is not on the side of the bound that the contract asks for: {names}"
            yield _error("figure-direction", key, message, "turn the bound round, or name the right figure")
        return
    wanted = list(_wanted(use.derivation, chosen[0].relation, value, within))
    if place.is_parameter and chosen[0].relation is Relation.ABOUT:
        wanted.append((Relation.EQUAL, value))
    if any(_is(bound, relation, number) for bound in place.stated for relation, number in wanted):
        return
    if any(bound.low <= number <= bound.high for bound in place.stated for _, number in wanted):
        message = f"the bound has the number and another direction than its figure: {names}"
        yield _error("figure-direction", key, message, "write the keyword or comparison that the figure states")
        return
    stated = ", ".join(dict.fromkeys(_told(bound.low) for bound in place.stated)) or "no number"
    meant = ", ".join(f"{relation} {_told(number)}" for relation, number in wanted)
    message = f"the bound is {stated}, and by its figure it would be {meant}: {names}"
    yield _error("figure-value", key, message, "correct the bound, or name the right figure")


def _wanted(
    derivation: str, relation: Relation, value: Fraction, within: Fraction
) -> Iterator[tuple[Relation, Fraction]]:
    """Yield the bounds that follow from a figure: one of them is enough."""
    if derivation == "tolerance":
        yield Relation.AT_MOST, within / value if value else within
        return
    if derivation == "complement":
        value, relation = 1 - value, relation.flipped
    elif derivation == "increase":
        value = 1 + value
    if relation is Relation.ABOUT:
        yield Relation.AT_LEAST, value - within
        yield Relation.AT_MOST, value + within
    else:
        yield relation, value


def _is(stated: Stated, relation: Relation, number: Fraction) -> bool:
    return stated.relation is relation and stated.low <= number <= stated.high


def _told(number: Fraction) -> str:
    return f"{float(number):.17g}" if abs(number) <= LARGEST else "too large"


def _about_unnamed(contract: Contract, figures: Figures) -> Iterator[Finding]:
    """Find bounds whose source is a document of figures.json, and which name no figure. 0 and 1 need none."""
    for clause in (*contract.clauses, *contract.rules):
        place = place_of(contract, clause.id)
        if (
            clause.id in uses_of(contract.document)
            or place is None
            or all(bound.low in (0, 1) for bound in place.stated)
        ):
            continue
        documents = [document for document in figures.documents.values() if document.is_named_in(place.source)]
        if documents:
            message = f"its source is {documents[0].name!r} of {FIGURES}, and it names no figure"
            remedy = "name the figure in 'figures', or say in the source that the number is this project's own"
            yield _error("figure-missing", clause.id, message, remedy)


def _error(rule: str, key: str, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.ERROR, pointer("figures", key), message, remedy)

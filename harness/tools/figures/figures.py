"""The figures of a folder of contracts: the numbers that bounds come from, each with its place in a document.

    figures = figures_of(family_of(contract.path))
    figures.named["iterations-at-20"].value

figures.json can come from a stranger, as contracts can. Loading it reads no document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Final, final

from harness.base import regular_file, schemas, strictjson
from harness.base.schemas import Problem
from harness.base.strictjson import JsonObject, pointer
from harness.contract.contract_annotations import FIGURES
from harness.contract.model import ContractError
from harness.tools.figures.quantity import Printed, converted, exact, numbers_in, printed

__all__ = ["Document", "Figure", "Figures", "Relation", "figures_of", "has_words", "is_printed_in"]

_LARGEST = 1 << 20


class Relation(StrEnum):
    """How what is measured must relate to a number."""

    EQUAL = "equal"
    AT_MOST = "at most"
    AT_LEAST = "at least"
    LESS = "less than"
    MORE = "more than"
    ABOUT = "about"

    @property
    def flipped(self) -> Relation:
        """The relation that holds of 1 less the value."""
        return _FLIPPED.get(self, self)

    def holds(self, value: Fraction, bound: Fraction) -> bool:
        """Whether a value relates so to a bound."""
        return {
            Relation.AT_MOST: value <= bound,
            Relation.AT_LEAST: value >= bound,
            Relation.LESS: value < bound,
            Relation.MORE: value > bound,
        }.get(self, value == bound)


_FLIPPED: Final = {
    Relation.AT_MOST: Relation.AT_LEAST,
    Relation.AT_LEAST: Relation.AT_MOST,
    Relation.LESS: Relation.MORE,
    Relation.MORE: Relation.LESS,
}
_SIGNS: Final[Mapping[str, tuple[Relation, ...]]] = {
    "~": (Relation.ABOUT,),
    "+": (Relation.AT_LEAST, Relation.MORE),
    "<": (Relation.LESS,),
    ">": (Relation.MORE,),
    "≤": (Relation.AT_MOST,),
    "≥": (Relation.AT_LEAST,),
    "": tuple(Relation),
}


@final
@dataclass(frozen=True, slots=True)
class Document:
    """A document that states figures."""

    name: str
    uri: str
    names: tuple[str, ...]
    """How contracts name it."""
    sha256: str
    """The digest of its text; empty if no text is compared."""
    unchecked: str
    """Why no text is compared."""

    def is_named_in(self, text: str) -> bool:
        """Whether a text names the document."""
        return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) for name in self.names)


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a document."""

    name: str
    document: Document
    label: str
    """What it is of, in the document's words."""
    called: tuple[str, ...]
    """What it is of, in the words of contracts: any of these."""
    value: Fraction
    unit: str
    relation: Relation
    within: Fraction
    """The largest distance from the value, in its unit; 0 unless the relation is `ABOUT`."""
    printed: str
    section: str
    row: str
    column: str
    anchor: str
    """Empty, as `section`, `row` and `column` are, if the locator does not have it."""

    def __str__(self) -> str:
        within = f" within {float(self.within):g}" if self.relation is Relation.ABOUT else ""
        return f"{self.name} is {self.relation} {self.printed}{within} ({self.label})"


@final
@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a folder."""

    path: Path
    documents: Mapping[str, Document]
    named: Mapping[str, Figure]


def figures_of(folder: Path) -> Figures | None:
    """Return the figures of a folder of contracts; None if it has no figures.json.

    Raises:
        ContractError: the file cannot be read, is not what its schema says, or contradicts itself.
    """
    path = folder / FIGURES
    try:
        document = strictjson.loads(regular_file.read(path, _LARGEST))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ContractError(path, [Problem("", f"cannot be read: {error.strerror}", "make it readable")]) from error
    except strictjson.JsonError as error:
        raise ContractError(path, [*error.problems]) from error
    if problems := schemas.problems("figures", document):
        raise ContractError(path, problems)
    documents = {name: _document(name, entry) for name, entry in document["documents"].items()}
    if problems := [
        problem for name, entry in document["figures"].items() for problem in _problems(name, entry, documents)
    ]:
        raise ContractError(path, problems)
    named = {name: _figure(name, entry, documents) for name, entry in document["figures"].items()}
    return Figures(path, documents, named)


def has_words(text: str, words: str) -> bool:
    """Whether a text has all of some words, in any order. Case and signs between words do not count."""
    return set(_words(words)) <= set(_words(text))


def is_printed_in(text: str, quantity: str) -> bool:
    """Whether a text prints exactly this quantity: no digit, sign or letter of another one stands beside it."""
    return _pattern(quantity).search(f" {text}") is not None


def _pattern(quantity: str) -> re.Pattern[str]:
    before = r"(?<![\w.~≈<>≤≥±])(?<!\d,)(?<!\W-)"
    after = r"(?![\w%+]|[.,]\d)" if quantity[-1].isalnum() or quantity[-1] == "%" else ""
    return re.compile(before + re.escape(quantity) + after)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _document(name: str, document: JsonObject) -> Document:
    names = tuple(document.get("names", ()))
    return Document(name, document["uri"], names, document.get("sha256", ""), document.get("unchecked", ""))


def _figure(name: str, document: JsonObject, documents: Mapping[str, Document]) -> Figure:
    value, within = exact(document["value"]), document.get("within", 0)
    part = isinstance(within, str)
    called = document.get("called", document["label"])
    return Figure(
        name=name,
        document=documents[document["document"]],
        label=document["label"],
        called=tuple(called) if isinstance(called, list) else (called,),
        value=value,
        unit=document["unit"],
        relation=Relation(document["relation"]),
        within=Fraction(within.removesuffix(" %")) / 100 * abs(value) if part else exact(within),
        printed=document["printed"],
        **{key: document.get(key, "") for key in ("section", "row", "column", "anchor")},
    )


def _problems(name: str, figure: JsonObject, documents: Mapping[str, Document]) -> Iterator[Problem]:
    """Yield every part of a figure that contradicts another one."""
    where = pointer("figures", name)
    document = documents.get(figure["document"])
    if document is None:
        known = ", ".join(documents)
        yield Problem(f"{where}/document", f"there is no document {figure['document']!r}", f"declared: {known}")
        return
    read = printed(figure["printed"])
    if read is None:
        yield Problem(f"{where}/printed", f"{figure['printed']!r} does not begin with a number", "as in `0.98x`")
        return
    yield from _unlike(where, figure, read)
    if ("within" in figure) != (figure["relation"] == Relation.ABOUT):
        yield Problem(where, "'within' belongs to the relation 'about', and only to it", "add or remove 'within'")
    yield from _unlocated(where, figure, document)


def _unlike(where: str, figure: JsonObject, read: Printed) -> Iterator[Problem]:
    if read.value != exact(figure["value"]):
        message = f"{strictjson.dumps(figure['value'])} is not the printed {figure['printed']!r}"
        yield Problem(f"{where}/value", message, "write the printed number")
    if read.unit and converted(Fraction(1), read.unit, figure["unit"]) != 1:
        message = f"{figure['unit']!r} is not the unit of the printed {figure['printed']!r}"
        yield Problem(f"{where}/unit", message, "write the printed unit")
    if Relation(figure["relation"]) not in _SIGNS[read.sign]:
        allowed = " or ".join(repr(str(sign)) for sign in _SIGNS[read.sign])
        message = f"{figure['relation']!r} is not what the printed {figure['printed']!r} says"
        yield Problem(f"{where}/relation", message, f"write {allowed}")


def _unlocated(where: str, figure: JsonObject, document: Document) -> Iterator[Problem]:
    """Yield what the locator lacks so that a machine can find the figure there."""
    if bool(document.sha256) == bool(document.unchecked):
        key = pointer("documents", document.name)
        yield Problem(key, "has both 'sha256' and 'unchecked', or neither", "state one of them")
    elif document.unchecked:
        if "place" not in figure:
            yield Problem(where, "has no 'place' in a document that is not compared", "say where it stands")
    elif ("row" in figure) != ("column" in figure) or ("row" in figure) == ("anchor" in figure):
        yield Problem(where, "needs 'row' and 'column' of a table, or 'anchor'", "state one of the two")
    else:
        at = figure.get("anchor", f"{figure.get('row')} {figure.get('column')}")
        if not has_words(at, figure["label"]):
            yield Problem(f"{where}/label", f"{figure['label']!r} is not at the locator", "use its words")
        if "anchor" in figure:
            yield from _unanchored(f"{where}/anchor", figure)


def _unanchored(where: str, figure: JsonObject) -> Iterator[Problem]:
    """Yield why the words of an anchor do not tie the number to its label: another number could be meant."""
    if not is_printed_in(figure["anchor"], figure["printed"]):
        message = f"does not print {figure['printed']!r}"
        yield Problem(where, message, "quote the words of the document with the number")
    rest = _pattern(figure["printed"]).sub(" ", f" {figure['anchor']}")
    others = set(numbers_in(rest, alone=True)) - set(numbers_in(figure["label"]))
    if others:
        message = f"prints other numbers too, such as {float(min(others)):g}"
        yield Problem(where, message, "quote fewer words, or add the other numbers to the label")

"""The figures of all folders of contracts that one lint looks at, and the documents that it compares them with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import final

from harness.contract import Contract, ContractError
from harness.contract.claim_folder import family_of
from harness.contract.contract_annotations import FIGURES
from harness.contract.figures import Figures, figures_of
from harness.lint.figure_bounds import about_figures, unused_figures
from harness.lint.linter import Finding, Severity
from harness.lint.source_documents import Texts, misplaced_figures, misquotes

__all__ = ["FigureFolders"]


@final
class FigureFolders:
    """The figures.json of some folders, each read once.

    Raises:
        TextsError: the folder of documents cannot be read.
    """

    def __init__(self, folders: Iterable[Path], sources: Path | None) -> None:
        self.contracts: Sequence[Contract] = ()
        """The contracts that were loaded."""
        self._texts = None if sources is None else Texts.in_folder(sources)
        self._figures: dict[Path, Figures | None] = {}
        self._refused: dict[Path, tuple[Finding, ...]] = {}
        for folder in dict.fromkeys(folders):
            try:
                self._figures[folder] = figures_of(folder)
            except ContractError as error:
                self._refused[folder] = tuple(
                    Finding("figures-refused", Severity.ERROR, *astuple(problem)) for problem in error.problems
                )

    def about(self, contract: Contract) -> Iterator[Finding]:
        """Yield what is wrong with the figures and quotes of a contract; nothing if its figures.json is refused."""
        folder = family_of(contract.path)
        if folder in self._refused:
            return
        figures = self._figures.get(folder)
        yield from about_figures(contract, figures)
        if figures is not None and self._texts is not None:
            yield from misquotes(contract, figures, self._texts)

    def findings(self, whole: Collection[Path]) -> Iterator[tuple[Path, tuple[Finding, ...]]]:
        """Yield each figures.json with what is wrong with it.

        Args:
            whole: the folders whose contracts are all looked at. Only there is a figure unused that none of them names.
        """
        for folder, refused in self._refused.items():
            yield folder / FIGURES, refused
        for folder, figures in self._figures.items():
            if figures is None:
                continue
            all_findings: list[Finding] = []
            if folder in whole:
                all_findings += unused_figures(
                    figures, (contract for contract in self.contracts if family_of(contract.path) == folder)
                )
            if self._texts is not None:
                all_findings += misplaced_figures(figures, self._texts)
            yield folder / FIGURES, tuple(all_findings)

    def summary(self) -> str:
        """Say how many figures were compared with documents, and how many have none to be compared with."""
        figures = [figure for each in self._figures.values() if each is not None for figure in each.named.values()]
        unchecked = sum(bool(figure.document.unchecked) for figure in figures)
        quotes = sum("quote" in source for contract in self.contracts for source in contract.document["sources"])
        compared = sum(self._texts is not None and self._texts.of(figure.document) is not None for figure in figures)
        return f"figures: {compared} compared with documents, {unchecked} of documents without a text; {quotes} quotes"

"""Lint of the patches of a contract's mutants.

A contract with a patch that does not apply can run: the mutant is inconclusive, and the subject is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import decode_source
from pathlib import Path

from harness.base import regular_file
from harness.base.strictjson import pointer
from harness.contract import Contract
from harness.contract.imports import imported_files
from harness.contract.patch import PatchError
from harness.contract.project_importer import module_file
from harness.lint.linter import Finding, Severity

__all__ = ["about_patches"]


def about_patches(contract: Contract, search: Sequence[Path]) -> Iterator[Finding]:
    """Yield an error for each patch that does not apply to the present sources.

    A patch of a module that the falsifier imports gets a warning: it changes the falsifier too, while a
    mutant must die of what the subject does. In the falsifier's own module, a patch changes one class or function.

    Args:
        search: the import roots of the claim's project.
    """
    folders = tuple(search)
    of_falsifier = (
        imported_files(contract.falsifier, folders)
        if any(each_mutant.patches for each_mutant in contract.mutants)
        else ()
    )
    for index, mutant in enumerate(contract.mutants):
        changed: dict[str, str] = {}
        for position, patch in enumerate(mutant.patches):
            where = pointer("mutants", index, "patches", position)
            is_own = patch.module == contract.falsifier.partition(":")[0]
            if not is_own and module_file(patch.module, folders) in of_falsifier:
                message = f"the falsifier imports {patch.module}, so the patch changes what judges the mutant"
                remedy = "patch what the subject alone imports, or name a class with the defect as 'subject'"
                yield Finding("patch-of-falsifier", Severity.WARNING, where, message, remedy)
            try:
                if patch.module not in changed:
                    changed[patch.module] = _source(patch.module, search)
                changed[patch.module] = patch.applied(changed[patch.module])
            except PatchError as error:
                remedy = "name a text that is there once, in the module of the subject or in 'module'"
                yield Finding("patch-does-not-fit", Severity.ERROR, where, str(error), remedy)


def _source(module: str, search: Sequence[Path]) -> str:
    file = module_file(module, search)
    if file is None:
        raise PatchError(f"there is no module {module} under {', '.join(map(str, search))}")
    try:
        return decode_source(regular_file.read(file))
    except (OSError, SyntaxError, UnicodeError) as error:
        raise PatchError(f"{file} cannot be read: {error}") from error

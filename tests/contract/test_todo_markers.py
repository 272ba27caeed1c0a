"""Parts of a claim that still begin with TODO."""

from __future__ import annotations

from pathlib import Path

from harness.contract.todo_markers import unwritten_code, unwritten_texts
from tests.contracts import contract_of, document


def test_texts_that_begin_with_todo_have_their_place() -> None:
    """Texts at any depth that begin with TODO after spaces are found. TODO within a text or in a key is not."""
    value = {"a": "TODO: say", "b": [1, " \nTODO", {"TODO": "a TODO", "c/d": "TODO"}], "e": None}
    assert list(unwritten_texts(value)) == [("/a", "TODO: say"), ("/b/1", " \nTODO"), ("/b/2/c~1d", "TODO")]
    assert list(unwritten_texts("TODO", "x", 1)) == [("/x/1", "TODO")]


def test_the_first_docstring_of_each_module_has_its_line(tmp_path: Path) -> None:
    """A module that several entry points name is listed once. A module that cannot be found is left out."""
    modules = {
        "one": '"""Done."""\n\n\ndef falsify():\n    """TODO."""\n    """TODO"""\nMutant = 1\n',
        "two": '"""TODO\n"""\nSubject = Mutant = 1\n',
        "three": "Mutant = 1",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    changed = document(falsifier="one:falsify", subject="two:Subject")
    mutant = changed["mutants"][0]
    changed["mutants"] = [
        {**mutant, "id": f"m-{number}", "subject": subject}
        for number, subject in enumerate(("gone:Mutant", "one:Mutant", "three:Mutant", "two:Mutant"))
    ]
    found = list(unwritten_code(contract_of(changed), [tmp_path]))
    assert found == [("one:falsify", tmp_path / "one.py", 5), ("two:Subject", tmp_path / "two.py", 1)]

"""A project with one cheap claim for each verdict.

pytester removes the modules that an inner session imports. A library in Rust cannot be imported twice, so such
libraries are imported here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cel  # noqa: F401
import jsonschema_rs  # noqa: F401

import harness.pytest_plugin.contract_items  # noqa: F401
from tests.contracts import document, write_project

PASSES, VOID, FAILS, NEEDS_CUDA = (f"F-DEMO-SORT-{number:03}" for number in (1, 2, 3, 4))
"""The ids of the claims, by the verdict on a machine without a GPU."""

_SAME = [
    {
        "id": "same",
        "subject": "falsifiers.demo.sorting:Same",
        "violates": ["nothing-lost"],
        "defect": "none, so nothing can kill it",
    }
]
_CUDA = {"full": {"requires": {"device": "cuda"}, "parameters": {"steps": 3}, "limits": {"seconds": 60}}}
_MORE = """class Same(Sorter):
    pass


"""


def write_demo(root: Path) -> Path:
    """Write the project; return its root."""
    documents: list[dict[str, Any]] = [
        document(id=PASSES),
        document(id=VOID, mutants=_SAME),
        document(id=FAILS, subject="falsifiers.demo.sorting:Forgetful", issue="DEMO-2"),
        document(id=NEEDS_CUDA, target=..., profiles=_CUDA, spec="SPEC-GPU-001"),
    ]
    documents[2]["mutants"] = _SAME
    write_project(root, *documents)
    for folder in (root / "falsifiers", root / "falsifiers" / "demo"):
        (folder / "__init__.py").touch()
    module = root / "falsifiers" / "demo" / "sorting.py"
    module.write_text(module.read_text().replace("def falsify(", f"{_MORE}def falsify("))
    return root

"""The example that a user names: arguments, a function that returns them, or one that draws them.

As a program, it says what `harness kernel check` has to know of the functions before it makes a contract:

    python -m harness.tools.kernels.user_example '{"against": "module:name", "example": "module:name"}' FOLDER…
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.base import strictjson
from harness.base.shortening import described
from harness.contract.entry_point import resolve
from harness.contract.project_importer import install

__all__ = ["drawing_function"]


def drawing_function(example: Any, like: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws arguments.

    Args:
        example: a function of one `Draw`; a function of nothing; or the arguments: a tuple, a dict of those by name, or
            a pair of both.
        like: makes a drawing function from arguments.
    """
    if callable(example) and inspect.signature(example).parameters:
        return example  # type: ignore[no-any-return]
    from harness.authoring.tensor_function.drawing import split

    return like(*split(example() if callable(example) else example))  # type: ignore[no-any-return]


def _description(request: dict[str, str]) -> dict[str, Any]:
    """The relations, the defects that fit the arguments, and the defaults of the choices."""
    from harness.authoring.tensor_function import RELATIONS, like
    from harness.authoring.tensor_function.drawing import Case, drawn
    from harness.tools.kernels.planted_defects import DEFECTS, shape_of

    resolve(request["against"])
    shape = shape_of(drawn(drawing_function(resolve(request["example"]), like), Case()))
    return {
        "relations": {name: [relation.text, relation.needs_gpu] for name, relation in RELATIONS.items()},
        "defects": {
            name: [
                defect.relation,
                defect.text,
                [*(defect.calls or (defect.relation,))],
                defect.needs,
                defect.needs_gpu,
            ]
            for name, defect in DEFECTS.items()
            if defect.fits(shape)
        },
    }


if __name__ == "__main__":
    request = strictjson.loads(sys.argv[1])
    install([*map(Path, sys.argv[2:])])
    try:
        answer = _description(request)
    except BaseException as error:
        answer = {"wrong": described(error)}
    print(json.dumps(answer))

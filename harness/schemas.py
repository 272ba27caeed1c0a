"""The JSON Schemas of our own formats, and validation that says what to do.

They live in contracts/schema/ of the source tree; the wheel carries them as harness/schema/.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import strictjson

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

__all__ = ["NAMES", "Problem", "pointer", "problems", "schema_folder"]

NAMES = ("contract", "observation", "record", "environment")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a JSON document: where (a JSON pointer), what, and what to do about it."""

    pointer: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.pointer or '/'}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


def schema_folder() -> Path:
    """Where the schema files are, in a wheel or in the source tree."""
    packaged = Path(__file__).parent / "schema"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "contracts" / "schema"


def pointer(*steps: str | int) -> str:
    """A JSON pointer (RFC 6901) from its steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def problems(name: str, document: Any) -> list[Problem]:
    """What keeps a document from being a valid `name` (one of NAMES); empty where nothing does."""
    found = sorted(
        _validator(name).iter_errors(document), key=lambda error: [str(step) for step in error.absolute_path]
    )
    return [problem for error in found for problem in _explain(error)]


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    schema = strictjson.load(schema_folder() / f"{name}.schema.json")
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _explain(error: ValidationError) -> Iterator[Problem]:
    """One problem an error; an unknown key is one problem each, at the key, with the nearest known key."""
    where = list(error.absolute_path)
    keyword, schema = str(error.validator), error.schema
    if keyword == "additionalProperties" and isinstance(schema, dict) and isinstance(error.instance, dict):
        known = list(schema.get("properties", {}))
        for key in error.instance:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
                yield Problem(pointer(*where, key), f"unknown key {key!r}", remedy)
    elif keyword == "required" and isinstance(error.instance, dict) and isinstance(error.validator_value, list):
        for key in error.validator_value:
            if key not in error.instance and error.message.startswith(repr(key)):
                yield Problem(pointer(*where), f"the key {key!r} is missing", f"add {key!r}")
    elif keyword == "not":
        yield Problem(
            pointer(*where),
            "has both 'properties' and 'additionalProperties'",
            "an object with properties is closed already; remove 'additionalProperties'",
        )
    elif keyword == "pattern":
        yield Problem(
            pointer(*where),
            f"{error.instance!r} is not of the form {error.validator_value}",
            "see contracts/schema/contract.schema.json",
        )
    else:
        yield Problem(pointer(*where), error.message[:300])

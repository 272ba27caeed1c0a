"""The JSON Schemas of our own formats, and validation that says what to do.

They live in contracts/schema/ of the source tree; the wheel carries them as harness/schema/.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.base import strictjson

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

__all__ = ["NAMES", "Problem", "pointer", "problems", "schema_folder"]

NAMES = (
    "contract", "calibration", "observation", "record", "environment", "trial", "artifacts", "counterexample",
    "attestation", "trainer",
)  # fmt: skip


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
    packaged = Path(__file__).parents[1] / "schema"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "contracts" / "schema"


def pointer(*steps: str | int) -> str:
    """A JSON pointer (RFC 6901) from its steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def problems(name: str, document: Any) -> list[Problem]:
    """What keeps a document from being a valid `name` (one of NAMES); empty where nothing does."""
    if _is_valid(name, document):
        return []
    found = sorted(
        _validator(name).iter_errors(document), key=lambda error: [str(step) for step in error.absolute_path]
    )
    return [problem for error in found for problem in _explain(error)]


def _is_valid(name: str, document: Any) -> bool:
    """Whether a document is valid, a hundred times as fast as one learns why it is not.

    What this validator has no form for, such as NaN or half a surrogate pair, is not called valid here: the other one,
    which explains itself, decides.
    """
    try:
        return _quick_validator(name).is_valid(document)
    except (ValueError, TypeError, RecursionError):
        return False


@cache
def _quick_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    from jsonschema_rs import Draft202012Validator

    return Draft202012Validator(strictjson.load(schema_folder() / f"{name}.schema.json"))


@cache
def _validator(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    schema = strictjson.load(schema_folder() / f"{name}.schema.json")
    Draft202012Validator.check_schema(schema)
    strict: Any = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]
    return cast("Draft202012Validator", strict(schema))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """`pattern` as ECMA 262 has it: `$` is the end of the text, where Python's also lets a newline follow."""
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _explain(error: ValidationError) -> Iterator[Problem]:
    """One problem an error; an unknown key is one problem each, at the key, with the nearest known key."""
    where: list[str | int] = list(error.absolute_path)
    instance: Any = error.instance
    argument: Any = error.validator_value
    schema: Any = error.schema if isinstance(error.schema, dict) else {}
    keyword = str(error.validator)
    advice = str(schema.get("description", ""))
    if keyword == "additionalProperties":
        known = list(schema.get("properties", {}))
        for key in instance:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
                yield Problem(pointer(*where, key), f"unknown key {key!r}", remedy)
    elif keyword == "required":
        for key in argument:
            # jsonschema reports each missing key as an error of its own.
            if key not in instance and error.message.startswith(repr(key)):
                wanted = schema.get("properties", {}).get(key, {})
                yield Problem(pointer(*where), f"the key {key!r} is missing", wanted.get("description", f"add {key!r}"))
    elif keyword == "not":
        yield Problem(
            pointer(*where),
            "has both 'properties' and 'additionalProperties'",
            "an object with properties is closed already; remove 'additionalProperties'",
        )
    elif "propertyNames" in error.absolute_schema_path:
        yield Problem(pointer(*where, instance), f"the name {instance!r} is not of the form {argument}", "rename it")
    elif keyword == "pattern":
        yield Problem(pointer(*where), f"{instance!r} is not of the form {argument}", advice or "write it in that form")
    else:
        yield Problem(pointer(*where), error.message[:300], advice or f"the schema asks for {keyword} {argument}")

"""The JSON Schemas of the harness's formats, and validation with remedies.

The schemas are in contracts/schema/ of the source tree, and in harness/schema/ of the wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.base import near, strictjson
from harness.base.strictjson import Problem, pointer

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

__all__ = ["MOST_PROBLEMS", "NAMES", "DocumentError", "Problem", "check", "loads", "problems", "schema_folder"]

NAMES = (
    "contract", "calibration", "equivalent", "figures", "planting", "observation", "record", "environment", "mutant",
    "artifacts", "counterexample", "attestation", "trainer", "probe", "roofline", "patches",
)  # fmt: skip


MOST_PROBLEMS = 1000
"""Maximum problems of one document. Each takes 0.1 ms to explain, and a document may have millions."""


class DocumentError(ValueError):
    """A JSON document is invalid. The text has the first five problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems[:5])))

    def within(self, *steps: str | int) -> DocumentError:
        """Return the same problems, with pointers prefixed by these steps."""
        return DocumentError(replace(problem, pointer=pointer(*steps) + problem.pointer) for problem in self.problems)


def schema_folder() -> Path:
    """Return the folder of the schema files, in a wheel or in the source tree."""
    packaged = Path(__file__).parents[1] / "schema"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "contracts" / "schema"


def check(name: str, document: Any) -> None:
    """Validate a document.

    Raises:
        DocumentError: the document is not a valid `name`, one of `NAMES`.
    """
    if violations := problems(name, document):
        raise DocumentError(violations)


def loads(name: str, text: str | bytes) -> Any:
    """Parse and validate a document.

    Raises:
        DocumentError: the text is not strict JSON, or not a valid `name`, one of `NAMES`.
    """
    try:
        document = strictjson.loads(text)
    except strictjson.JsonError as error:
        raise DocumentError(error.problems) from error
    check(name, document)
    return document


def problems(name: str, document: Any) -> list[Problem]:
    """Return up to `MOST_PROBLEMS` problems of a document as `name`, one of `NAMES`; empty if it is valid."""
    if _is_valid(name, document):
        return []
    first = islice(_validator(name).iter_errors(document), MOST_PROBLEMS)
    errors = sorted(first, key=lambda error: [str(step) for step in error.absolute_path])
    return list(islice((problem for error in errors for problem in _explain(error)), MOST_PROBLEMS))


def _is_valid(name: str, document: Any) -> bool:
    """Whether a document is valid. This is a hundred times faster than explaining why it is not.

    This validator finds all errors before it returns the first, and a document may have millions.
    This validator cannot represent some values, such as NaN or half a surrogate pair. Then the result is False, and the
    explaining validator decides.
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

    strict: Any = extend(Draft202012Validator, {"pattern": _pattern})  # type: ignore[no-untyped-call]
    return cast("Draft202012Validator", strict(strictjson.load(schema_folder() / f"{name}.schema.json")))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    """Check `pattern` as in ECMA 262: `$` is the end of the text. Python's `$` also matches before a newline."""
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _explain(error: ValidationError) -> Iterator[Problem]:
    """Yield the problems of one error. Each unknown key is a separate problem, with the closest known key."""
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
                remedy = near.hint(str(key), known, f"known here: {', '.join(known)}", "'{}'")
                yield Problem(pointer(*where, key), f"unknown key {key!r}", remedy)
    elif keyword == "required":
        for key in argument:
            # jsonschema reports each missing key as an error of its own.
            if key not in instance and error.message.startswith(repr(key)):
                meaning = schema.get("properties", {}).get(key, {}).get("description", "")
                remedy = f"add {key!r}: {meaning}" if meaning else f"add {key!r}"
                yield Problem(pointer(*where), f"the key {key!r} is missing", remedy)
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

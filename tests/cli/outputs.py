"""What a command prints with --json, against its published schema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from harness.base import strictjson
from harness.base.schemas import schema_folder

__all__ = ["assert_follows_schema"]


def assert_follows_schema(command: str, document: Any) -> None:
    """Check a document of a command: it has a version, and the schema describes it."""
    schema = strictjson.load(schema_folder() / "output.schema.json")
    rules = {**schema["$defs"][command], "$defs": schema["$defs"]}
    assert [f"{error.json_path}: {error.message}" for error in Draft202012Validator(rules).iter_errors(document)] == []
    assert document["version" if command == "inspect" else "format"] == 1

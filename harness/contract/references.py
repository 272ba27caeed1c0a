"""Resolves `$ref` in an observation schema or in declared parameters when a contract is loaded.

No other module sees a `$ref`. The contract's schema allows only `#/$defs/<name>` of the same schema. Circular
references are refused, and so is a schema that becomes too large when resolved.
"""

from __future__ import annotations

from typing import Any

from harness.base.schemas import Problem
from harness.base.strictjson import JsonObject, pointer
from harness.contract.clauses import ANNOTATIONS, ITEM, VALUE

__all__ = ["inline", "pointer_of"]

_LARGEST = 2000  # schemas after resolving; if each definition uses the next one twice, the number doubles each time


def inline(schema: JsonObject, key: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return the schema with all references resolved, and the problems of references.

    Args:
        key: the schema's key in the contract, "observation" or "parameters".
    """
    problems: list[Problem] = []
    definitions = schema.get("$defs", {})
    size = 0

    def resolve(node: JsonObject, where: str, opened: tuple[str, ...]) -> dict[str, Any]:
        nonlocal size
        size += 1
        if size > _LARGEST:
            return {}
        resolved = {key: value for key, value in node.items() if key not in ("$ref", "$defs")}
        if "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            place = f"{where}/$ref"
            if name in opened:
                problems.append(Problem(place, f"{node['$ref']} refers to itself", "write it without recursion"))
                return {}
            if name not in definitions:
                problems.append(Problem(place, f"{node['$ref']} does not exist", f"define it in {key}.$defs"))
                return {}
            referred = resolve(definitions[name], pointer(key, "$defs", name), (*opened, name))
            twice = sorted(key for key in resolved if key in referred and key not in ANNOTATIONS)
            if twice:
                remedy = "keep one of them; a clause is stated once"
                problems.append(Problem(f"{where}/{twice[0]}", f"{node['$ref']} has {twice[0]!r} too", remedy))
            resolved = {**referred, **resolved}
        for name, inner in node.get("properties", {}).items():
            resolved["properties"] = {
                **resolved["properties"],
                name: resolve(inner, f"{where}{pointer('properties', name)}", opened),
            }
        for keyword in ("items", "additionalProperties"):
            if keyword in node:
                resolved[keyword] = resolve(node[keyword], f"{where}/{keyword}", opened)
        return resolved

    whole = resolve(schema, pointer(key), ())
    if size > _LARGEST:
        problems.append(
            Problem(pointer(key, "$defs"), f"resolving the references gives over {_LARGEST} schemas", "use fewer")
        )
    return whole, list(dict.fromkeys(problems))


def pointer_of(schema: JsonObject, key: str, path: tuple[str, ...], keyword: str = "") -> str:
    """Return the JSON pointer of a clause in the contract file. Behind a reference, it points into `$defs`."""
    steps: list[str] = [key]
    node: JsonObject = schema
    definitions = schema.get("$defs", {})

    def follow(reference: str) -> None:
        nonlocal node, steps
        while reference not in node and "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            node, steps = definitions[name], [key, "$defs", name]

    for step in path:
        inner = {ITEM: "items", VALUE: "additionalProperties"}.get(step, "properties")
        follow(inner)
        steps += [inner] if step in (ITEM, VALUE) else [inner, step]
        node = node[inner] if step in (ITEM, VALUE) else node[inner][step]
    if keyword:
        follow(keyword)
        steps += [keyword] if keyword in node else []
    return pointer(*steps)

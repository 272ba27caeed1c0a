"""The contract of a function of tensors that has none."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

__all__ = ["KernelCheck", "constants_of", "contract_of"]

_LARGEST_CONSTANT: Final = 1 << 17


@dataclass(frozen=True)
class KernelCheck:
    """What `harness kernel check` is asked."""

    function: str
    """The entry point of the function."""
    against: str
    """That of the reference."""
    example: str
    """That of the arguments, or of the function that draws them."""
    relations: Sequence[str]
    dtypes: Sequence[str]
    differentiable: bool = True
    deterministic: bool = True
    waits: bool = True
    constants: Sequence[int] = ()
    largest: int = 1 << 14
    tf32: bool = False
    slack: float = 1.0
    time: bool = False
    """Whether it is timed against the reference, alone on the device."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What each relation says."""
    needing_gpu: frozenset[str] = frozenset()
    """The relations that only a GPU can break."""
    seconds: float = 600.0


def contract_of(
    checked: KernelCheck, name: str, defects: Mapping[str, tuple[str, str, Sequence[str]]], *, on_gpu: bool
) -> dict[str, Any]:
    """Return a contract: every relation is a list of violations that has to be empty.

    Args:
        name: the id of the claim.
        defects: for each defect that is planted: its relation, what is wrong, and the relations to try.
        on_gpu: whether the full profile needs a GPU; a reduced one then omits what only a GPU can break.
    """
    parameters = {**asdict(checked), "relations": [*checked.relations], "defect": None}
    for left_out in ("texts", "needing_gpu", "seconds"):
        del parameters[left_out]
    parameters = {key: [*value] if isinstance(value, tuple) else value for key, value in parameters.items()}
    limits = {"seconds": checked.seconds}
    device = "cuda" if on_gpu else "any"
    requires = {"modules": ["torch"]}
    profiles: dict[str, Any] = {
        "full": {"requires": {"device": device, **requires}, "parameters": parameters, "limits": limits}
    }
    of_gpu = [relation for relation in checked.relations if relation in checked.needing_gpu]
    if on_gpu:
        reduced = {"requires": {"device": "any", **requires}, "parameters": parameters, "limits": limits}
        profiles["reduced"] = {**reduced, **({"omits": of_gpu} if of_gpu else {})}
    module, _, function = checked.function.partition(":")
    return {
        **({"lease": "exclusive"} if checked.time else {}),
        "id": name,
        "issue": "KERNEL",
        "spec": "KERNEL",
        "title": f"{function} computes what {checked.against.partition(':')[2]} does"[:120],
        "claim": f"{function} of {module} returns what the reference {checked.against} does, within rounding, for all "
        "sizes, dtypes and layouts that it accepts, whatever was called before, and changes nothing else.",
        "sources": [{"uri": checked.against, "locator": "the reference"}],
        "falsifier": "harness.tools.kernels.relations_hold:falsify",
        "subject": "harness.tools.kernels.user_function:of_function",
        "target": {"type": "cuda" if on_gpu else "cpu"},
        "profiles": profiles,
        "observation": _observation(checked),
        "mutants": [_mutant(*defect) for defect in defects.items()],
    }


def _observation(checked: KernelCheck) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "calls": {
            "type": "integer", "minimum": 1, "x-unit": "calls", "x-source": "no call refutes nothing",
            "description": "How often the function was called in this process.",
        },
        "untried": {
            "type": "array", "maxItems": 0, "x-source": "every relation is tried, or does not concern the function",
            "description": "Relations that were never tried, though they concern the function.",
        },
    }  # fmt: skip
    for relation in checked.relations:
        properties[relation] = {
            "type": "array",
            "maxItems": 0,
            "x-source": "it holds for every right function",
            "description": f"Violations, each with its smallest case. {checked.texts[relation]}",
        }
    if checked.time:
        properties["time_ratio"] = {
            "type": "array", "minItems": 3, "maxItems": 3, "x-source": "an estimate between two bounds",
            "description": "Time of the function divided by that of the reference: low, estimate and high of 99 %.",
            "items": {"type": "number", "minimum": 0, "x-unit": "ratio", "x-source": "a ratio"},
        }  # fmt: skip
        properties["untrue_times"] = {
            "type": "array", "maxItems": 0, "x-source": "a time counts if the timed result is right",
            "description": "Timed results that are wrong, and times on which events and clock disagree.",
        }  # fmt: skip
    example: dict[str, Any] = {name: [] if schema["type"] == "array" else 1 for name, schema in properties.items()}
    if checked.time:
        example["time_ratio"] = [0.9, 1.0, 1.1]
    return {"type": "object", "properties": properties, "examples": [example]}


def _mutant(name: str, defect: tuple[str, str, Sequence[str]]) -> dict[str, Any]:
    relation, text, tried = defect
    return {
        "id": name,
        "subject": "harness.tools.kernels.user_function:of_function",
        "parameters": {"defect": name, "relations": [*tried], "time": False},
        "violates": [f"{relation}.maxItems"],
        "defect": f"{text}, planted in this function",
    }


def constants_of(source: str) -> tuple[int, ...]:
    """The integers from 2 to 131072 in a Python source text: among them are the sizes of its blocks."""
    constants = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and type(node.value) is int and 2 <= node.value <= _LARGEST_CONSTANT
    }
    return tuple(sorted(constants))

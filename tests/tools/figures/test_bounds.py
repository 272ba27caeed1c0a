"""Lint compares the bounds of a contract with the figures that it names."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from harness.contract.project import Project
from harness.tools.figures.bounds import about_figures, unused_figures
from harness.tools.figures.figures import Figures
from tests.contracts import contract_of
from tests.tools.figures.rates import bound, figures, written

REPOSITORY = Path(__file__).parents[3]
LIGER = {"liger": {"type": "number", "minimum": 0.98, "maximum": 0.98, "x-unit": "x", "x-source": "the benchmarks"}}
NAMED = {"liger.minimum": "liger", "liger.maximum": "liger"}


def rules(content: dict[str, Any], figures: Figures | None) -> list[tuple[str, str]]:
    """The kind and the place of each finding; each has a remedy."""
    found = list(about_figures(contract_of(content), figures))
    assert all(finding.remedy for finding in found)
    return [(finding.rule, finding.pointer.removeprefix("/figures/")) for finding in found]


def measured(unit: str = "", **keywords: Any) -> dict[str, Any]:
    """A measurement called `share_of_steps` with these bounds."""
    described = {"description": "Also the loss, the memory, liger and triton.", "x-source": "a test"}
    return {"share_of_steps": {"type": "number", **described, **({"x-unit": unit} if unit else {}), **keywords}}


@pytest.mark.parametrize(
    ("measurements", "named"),
    [
        (LIGER, NAMED),
        # Up to rounding, two bounds are one number.
        (measured("x", minimum=0.9799999999, maximum=0.9800000001), {"share_of_steps.minimum": "liger"}),
        (measured("x", const=0.98), {"share_of_steps.const": "liger"}),
        (measured("ratio", maximum=1.17), {"share_of_steps.maximum": "triton"}),
        (measured("percent", maximum=117), {"share_of_steps.maximum": "triton"}),
        (measured("iterations", minimum=18000), {"share_of_steps.minimum": "iterations"}),
        (measured("iterations", maximum=22000), {"share_of_steps.maximum": "iterations"}),
        (measured("bytes", exclusiveMaximum=2147483648), {"share_of_steps.exclusiveMaximum": "memory"}),
        (measured("ratio", minimum=0.35), {"share_of_steps.minimum": "share"}),
        (measured("ratio", maximum=0.65), {"share_of_steps.maximum": {"figure": "share", "as": "complement"}}),
        (measured("ratio", minimum=1.35), {"share_of_steps.minimum": {"figure": "share", "as": "increase"}}),
        (measured("ratio", maximum=0.1), {"share_of_steps.maximum": {"figure": "iterations", "as": "tolerance"}}),
        (measured("ratio", maximum=1), {"share_of_steps.maximum": {"figure": "liger", "as": "side"}}),
        (measured("x", const=2.15), {"share_of_steps.const": {"sum": ["liger", "triton"]}}),
        (measured(maximum=1.17), {"share_of_steps.maximum": {"figure": "triton", "unit": "x"}}),
    ],
)
def test_a_bound_that_is_its_figure(measurements: Any, named: Any, tmp_path: Path) -> None:
    content = figures(triton={"relation": "equal"}) if "2.15" in str(measurements) else None
    assert rules(bound(measurements, named), written(tmp_path, content)) == []


@pytest.mark.parametrize(
    ("measurements", "named", "expected"),
    [
        # The number of another row.
        (measured("x", maximum=0.98), "triton", "figure-value"),
        # One unit in the last place.
        (measured("x", maximum=1.1700000000000002), "triton", "figure-value"),
        (measured("x", minimum=1.17), "triton", "figure-direction"),
        (measured("x", const=1.17), "triton", "figure-direction"),
        (measured("x", exclusiveMaximum=1.17), "triton", "figure-direction"),
        # An equality needs both bounds.
        (measured("x", minimum=0.98), "liger", "figure-direction"),
        (measured("x", minimum=0.98, maximum=0.99), "liger", "figure-direction"),
        (measured("s", maximum=1.17), "triton", "figure-unit"),
        (measured("ms", maximum=1.17), "triton", "figure-unit"),
        (measured("%", maximum=1.17), "triton", "figure-value"),
        (measured(maximum=1.17), "triton", "figure-unit"),
        (measured("x", maximum=1.17), {"figure": "triton", "unit": "x"}, "figure-unit"),
        (measured("GB", exclusiveMaximum=2), "memory", "figure-value"),
        # About 20,000 within a tenth, the wrong way round.
        (measured("iterations", minimum=22000), "iterations", "figure-direction"),
        (measured("iterations", minimum=20000), "iterations", "figure-value"),
        (measured("iterations", const=20000), "iterations", "figure-value"),
        (measured("iterations", minimum=17000), "iterations", "figure-value"),
        (measured("ratio", minimum=0.65), {"figure": "share", "as": "complement"}, "figure-direction"),
        (measured("ratio", minimum=1), {"figure": "liger", "as": "side"}, "figure-direction"),
        (measured("ratio", maximum=1), {"figure": "triton", "as": "side"}, "figure-direction"),
        (measured("x", maximum=1.17), "tritn", "figure-unknown"),
        (measured("x", maximum=1.17), {"as": "side"}, "figure-unknown"),
        (measured("x", const=0.98), {"sum": ["liger", "triton"]}, "figure-value"),
    ],
)
def test_a_bound_that_differs_is_refused(measurements: Any, named: Any, expected: str, tmp_path: Path) -> None:
    bounds = [
        name for name in ("minimum", "maximum", "const", "exclusiveMaximum") if name in measurements["share_of_steps"]
    ]
    key = f"share_of_steps.{bounds[0]}"
    assert rules(bound(measurements, {key: named}), written(tmp_path)) == [(expected, key)]


def test_a_bound_of_something_else_is_refused(tmp_path: Path) -> None:
    """The contract's words there must have what the figure is of."""
    of_triton = {"triton": {**LIGER["liger"], "description": "The path of Triton."}}
    named = {"triton.minimum": "liger", "triton.maximum": "liger"}
    expected = [("figure-label", "triton.minimum"), ("figure-label", "triton.maximum")]
    assert rules(bound(of_triton, named), written(tmp_path)) == expected


@pytest.mark.parametrize(
    "key", ["gone.minimum", "parameters.gone", "parameters.steps[0]", "mutants.gone", "no-rule", ""]
)
def test_a_place_that_the_contract_lacks(key: str, tmp_path: Path) -> None:
    assert rules(bound({}, {key: "liger"}), written(tmp_path)) == [("figure-place", key)]


def test_without_figures_json(tmp_path: Path) -> None:
    """A contract that names no figure needs none."""
    assert rules(bound({}, NAMED), None) == [("figure-place", "liger.minimum"), ("figure-place", "liger.maximum")]
    expected = [("figure-unknown", "liger.minimum"), ("figure-unknown", "liger.maximum")]
    assert rules(bound(LIGER, NAMED), None) == expected
    plain = bound(LIGER, NAMED)
    del plain["figures"]
    assert rules(plain, None) == []


@pytest.mark.parametrize(
    ("rule", "named", "expected"),
    [
        ("self.returned <= 1.17 * self.given", "triton", []),
        ("1.17 * self.given >= self.returned", "triton", []),
        ("self.values.all(one, one <= 1.17 * self.given)", "triton", []),
        ("self.returned <= parameters.limit * self.given", "triton", []),
        ("self.returned >= 1.17 * self.given", "triton", ["figure-direction"]),
        ("1.17 * self.given <= self.returned", "triton", ["figure-direction"]),
        ("self.returned < 1.17 * self.given", "triton", ["figure-direction"]),
        ("self.returned <= 1.18 * self.given", "triton", ["figure-value"]),
        # A divisor bounds the other way.
        ("self.returned <= self.given / 1.17", "triton", ["figure-value"]),
        ("self.returned - 20000.0 <= 0.1 * 20000.0", {"figure": "iterations", "as": "tolerance"}, []),
    ],
)
def test_rules(rule: str, named: Any, expected: list[str], tmp_path: Path) -> None:
    """A rule states its numbers and parameters on a side of each comparison."""
    use = {"figure": named, "unit": "x"} if isinstance(named, str) else named
    content = bound({}, {"limited": use})
    added = {"id": "limited", "rule": rule, "message": "triton, in steps", "source": "a test"}
    content["rules"].append(added)
    for profile in content["profiles"].values():
        profile["parameters"]["limit"] = 1.17
    assert [kind for kind, _ in rules(content, written(tmp_path))] == expected


def test_parameters(tmp_path: Path) -> None:
    """A parameter has the figure's number. An item of a list is called as the items beside it in other lists."""
    content = bound(
        {},
        {
            f"parameters.speedup[{index}]": {"figure": name, "unit": "x"}
            for index, name in ((0, "liger"), (1, "triton"))
        },
    )
    for profile in content["profiles"].values():
        profile["parameters"] |= {"speedup": [0.98, 1.17], "path": ["liger", "triton"]}
    # A parameter is no limit. A rule that reads it can be one.
    assert rules(content, written(tmp_path)) == [("figure-direction", "parameters.speedup[1]")]
    found = written(tmp_path, figures(triton={"relation": "equal"}))
    assert rules(content, found) == []
    swapped = copy.deepcopy(content)
    swapped["profiles"]["full"]["parameters"]["speedup"] = [1.17, 0.98]
    assert {kind for kind, _ in rules(swapped, found)} == {"figure-value"}
    renamed = copy.deepcopy(content)
    renamed["profiles"]["full"]["parameters"]["path"] = ["triton", "liger"]
    assert {kind for kind, _ in rules(renamed, found)} == {"figure-label"}
    # The value that a document states about something is a number as well.
    about = copy.deepcopy(content)
    about["parameters"] = {
        "type": "object",
        "properties": {"steps_planned": {"type": "integer", "x-unit": "iterations"}},
    }
    for profile in about["profiles"].values():
        profile["parameters"] = {"steps_planned": 20000}
    about["figures"] = {"parameters.steps_planned": "iterations"}
    assert rules(about, found) == []
    # The full profile does the work that the source speaks of.
    smaller = copy.deepcopy(content)
    smaller["profiles"]["reduced"]["parameters"]["speedup"] = [1.0, 1.0]
    assert rules(smaller, found) == []


def test_texts(tmp_path: Path) -> None:
    """The claim, a mutant's defect and a parameter that is a text have the figure's number among theirs."""
    named = {
        "claim": ["liger", {"figure": "iterations", "unit": "iterations"}],
        "mutants.forgets-one": "share",
        "parameters.way": "triton",
    }
    content = bound({}, named, claim="After 20,000 steps, liger is 0.98 times as fast.")
    content["mutants"][0]["defect"] = "drops a share of 35 %"
    for profile in content["profiles"].values():
        profile["parameters"]["way"] = "triton/1.17"
    found = written(tmp_path)
    assert rules(content, found) == []
    content["claim"] = "After 21,400 steps, liger is 0.99 times as fast."
    content["mutants"][0]["defect"] = "drops a share of 53 %"
    assert [kind for kind, _ in rules(content, found)] == ["figure-value"] * 3


def test_a_bound_with_a_source_must_name_a_figure(tmp_path: Path) -> None:
    """A source that is a document of figures.json is no words alone. 0 and 1 need no figure."""
    found = written(tmp_path)
    sourced = {"type": "number", "minimum": 0, "maximum": 7, "x-source": "The benchmarks, table 3"}
    assert rules(bound({"x": sourced}, {"claim": "liger"}, claim="liger: 0.98"), found) == [
        ("figure-missing", "/x.maximum"[1:])
    ]
    assert (
        rules(
            bound(
                {"x": {**sourced, "x-source": "our own; not the benchmarksuite"}},
                {"claim": "liger"},
                claim="liger: 0.98",
            ),
            found,
        )
        == []
    )
    content = bound({}, {"claim": "liger"}, claim="liger: 0.98")
    content["rules"].append({"id": "many", "rule": "self.given < 9.0", "message": "m", "source": "the paper, page 2"})
    assert rules(content, found) == [("figure-missing", "many")]


def test_a_figure_that_no_contract_names(tmp_path: Path) -> None:
    found = written(tmp_path)
    contract = contract_of(bound(LIGER, {**NAMED, "given.const": {"sum": ["share", "loss"]}}))
    expected = ["/figures/triton", "/figures/iterations", "/figures/memory"]
    assert [finding.pointer for finding in unused_figures(found, [contract])] == expected


@pytest.mark.parametrize(
    ("name", "change", "refused"),
    [
        ("F-GB10-TABLE-CONSIST-001", {}, set()),
        ("F-GB10-SPEEDUP-001", {}, set()),
        # Liger and Triton exchanged, as these contracts once had them.
        ("F-GB10-TABLE-CONSIST-001", {"speedup-liger": 1.17, "speedup-triton": 0.98}, {"figure-value"}),
        ("F-GB10-SPEEDUP-001", {"speedup-liger": 1.17, "speedup-triton": 0.98}, {"figure-direction"}),
        ("F-GB10-TABLE-CONSIST-001", {"rate-liger": 16950, "rate-triton": 14202}, {"figure-value"}),
        ("F-GB10-ITERS-001", {"iterations-at-20": 21400}, {"figure-value"}),
    ],
)
def test_rows_of_our_own_figures_cannot_be_exchanged(
    name: str, change: dict[str, float], refused: set[str], tmp_path: Path
) -> None:
    content = json.loads((REPOSITORY / "contracts" / "nanochat" / "figures.json").read_text(encoding="utf-8"))
    for figure, value in change.items():
        content["figures"][figure] |= {"value": value, "printed": f"{value}"}
        if content["figures"][figure]["relation"] == "about":
            content["figures"][figure] |= {"anchor": f"ratio=20, {value}"}
    contract = Project.find(REPOSITORY).contract(name)
    assert {finding.rule for finding in about_figures(contract, written(tmp_path, content))} == refused

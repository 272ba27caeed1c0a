"""Known defects of test suites, planted in the syntax tree of a module while pytest imports it. No file is changed.

They prove that a run of `harness falsify-tests` could have failed: each is a mutant of its contract.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, final

from harness.tools.suite.assertions import mark

__all__ = ["COLLAPSED", "FAULTS", "HIDDEN", "Fault", "can_plant", "plant"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def plant(tree: ast.Module, file: str, fault: dict[str, Any]) -> None:
    """Plant a defect in one test, in place.

    Args:
        fault: `kind`, a key of FAULTS, and `function`, the id of a test without its parameters: `FILE::CLASS::NAME`.
    """
    place, *names = fault["function"].split("::")
    kind = FAULTS.get(fault["kind"])
    if place == file and kind is not None and kind.plant is not None:
        for function, holder in _found(tree.body, names):
            kind.plant(function, holder)
            ast.fix_missing_locations(tree)


def can_plant(source: str, fault: dict[str, Any]) -> bool:
    """Whether a defect changes anything in a file: a test can be inherited, or assert in a helper only."""
    tree, healthy = ast.parse(source), ast.parse(source)
    plant(tree, fault["function"].partition("::")[0], fault)
    return ast.dump(tree) != ast.dump(healthy)


def _found(body: list[ast.stmt], names: list[str]) -> Iterator[tuple[Function, list[ast.stmt]]]:
    for node in list(body):
        if isinstance(node, ast.ClassDef) and len(names) > 1 and node.name == names[0]:
            yield from _found(node.body, names[1:])
        elif isinstance(node, Function) and names == [node.name]:
            yield node, body


def _return_early(function: Function, holder: list[ast.stmt]) -> None:
    """`pass  # return`: nothing of the test runs."""
    function.body.insert(0, ast.Return(None) if not _yields(function) else ast.parse("if True: return").body[0])


def _comment_out(function: Function, holder: list[ast.stmt]) -> None:
    """The assertions are commented out; all else runs."""
    _WithoutAssertions().visit(function)


def _catch(function: Function, holder: list[ast.stmt]) -> None:
    """`except AssertionError: pass` around the test."""
    caught = ast.ExceptHandler(ast.Name("AssertionError", ast.Load()), None, [ast.Pass()])
    function.body = [ast.Try(body=function.body, handlers=[caught], orelse=[], finalbody=[])]


def _skip(function: Function, holder: list[ast.stmt]) -> None:
    function.decorator_list.insert(0, _expression("__import__('pytest').mark.skip(reason='slow')"))


def _expect_failure(function: Function, holder: list[ast.stmt]) -> None:
    function.decorator_list.insert(0, _expression("__import__('pytest').mark.xfail(reason='flaky')"))


def _delete(function: Function, holder: list[ast.stmt]) -> None:
    holder[holder.index(function)] = ast.Pass()


COLLAPSED: Final = "parameters-collapsed"
"""The defect that the plugin plants when pytest makes the cells of a test: only one of them is left."""
HIDDEN: Final = "failures-hidden"
"""The defect that the plugin plants at the end of a session: pytest ends with 0, whatever failed."""


@final
@dataclass(frozen=True)
class Fault:
    """A kind of defect of a suite."""

    defect: str
    violates: str
    """The clause of the contract that it violates."""
    plant: Callable[[Function, list[ast.stmt]], None] | None = None
    """Plants it in a test function, given the body that holds the function. None if the plugin plants it elsewhere."""


FAULTS: Final = {
    "returns-early": Fault("`pass  # return` at the beginning of a test", "fewer_assertions.maxItems", _return_early),
    "assertions-commented": Fault(
        "the assertions of a test are commented out", "fewer_assertions.maxItems", _comment_out
    ),
    "failures-caught": Fault("`except AssertionError: pass` around a test", "deaf.maxItems", _catch),
    "skipped": Fault("a test has a skip mark", "skipped.maxItems", _skip),
    "expected-to-fail": Fault("a test has an xfail mark", "expected_to_fail.maxItems", _expect_failure),
    "deleted": Fault("a test is deleted", "missing.maxItems", _delete),
    COLLAPSED: Fault("the values of a parameter are shrunk to one", "missing.maxItems"),
    HIDDEN: Fault("pytest ends with 0, whatever failed", "survived_share.maximum"),
}
"""The kinds by name."""


class _WithoutAssertions(ast.NodeTransformer):
    """Replaces every statement that `mark` would mark by `pass`."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Assert | ast.Expr):
            alone = ast.Module([node], [])
            before = len(alone.body)
            mark(alone, "")
            return ast.copy_location(ast.Pass(), node) if len(alone.body) > before else node
        return self.generic_visit(node)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _yields(function: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))

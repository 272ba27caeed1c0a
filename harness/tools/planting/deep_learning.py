"""Operators for training code, after the catalogue of DeepCrime (Humbatova, Jahangirova and Tonella, 2021).

They recognize a variable's role only by its name: `labels`, `lr`, `dropout`. These of the catalogue's 24 operators are
implemented, by the catalogue's abbreviations:

    data             TRD deleted, TUD unbalanced, TAN noisy training data; HBS batch size, HDB batches of one
    labels           TCL changed, TCO overlapping labels
    loss             LCH changed loss function
    optimizer        OCH changed optimizer, OCG changed gradient clipping
    rate             HLR changed learning rate
    initialisation   WCI changed initial weights
    activation       ACH changed, ARM removed activation function
    regularisation   RCW changed, RRW removed weight decay; RCD changed dropout rate
    schedule         HNE changed number of epochs

The general operators on booleans plant WAB and WRB (`bias=True`). Four are not implemented: AAL and RAW add code, RCP
changes the patience of early stopping, and VRM removes the validation set.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harness.tools.planting.syntax import Edit, Operator, Site, called

__all__ = ["OPERATORS"]

_DATA: Final = r"(^|_)(batch|inputs?|input_ids|tokens|rows|data|dataset|sequences?|images?)$"
_LABELS: Final = r"(^|_)(labels?|targets?)$"
_LOSS: Final = r"(^|_)(loss|losses|divergence|cross_entropy|kl)$"
_RATE: Final = r"^(lr|learning_rate|base_lr|max_lr|peak_lr|min_lr)$"
_SCHEDULE: Final = r"^(warmup|warmup_steps|total_steps|decay_steps|T_max|gamma|step_size)$"
_LENGTH: Final = r"^(epochs|num_epochs|n_epochs|num_train_epochs|max_steps|num_steps|train_steps)$"
_BATCH: Final = r"^(batch_size|micro_batch|micro_batch_size|per_device_train_batch_size)$"
_Table = Mapping[str, Sequence[tuple[str, Sequence[str]]]]
"""By group: names, and the expressions that replace a value; {0} is the value."""
_ASSIGNED: Final[_Table] = {
    "data": [
        (
            _DATA,
            [
                "{0}[: max(1, len({0}) // 2)]",
                "{0}[:1].expand_as({0})",
                "{0}.where({0}.new_ones({0}.shape, dtype=float).bernoulli(0.9).bool(), {0}.roll(1, -1))",
            ],
        )
    ],
    "labels": [(_LABELS, ["{0}.roll(1, 0)", "{0}.roll(1, -1)", "{0} // 2 * 2"])],
    "loss": [(_LOSS, ["{0} * 0.5", "{0}.detach()"])],
}
"""For variables, on the line that assigns them."""
_GIVEN: Final[_Table] = {
    "data": [(_BATCH, ["max(1, ({0}) // 2)", "1"])],
    "rate": [(_RATE, ["10 * ({0})", "0.5 * ({0})"])],
    "schedule": [(_SCHEDULE, ["2 * ({0})"]), (_LENGTH, ["max(1, ({0}) // 2)"])],
}
"""For variables, keyword arguments, and entries of a group of parameters."""
_KEYWORDS: Final[_Table] = {
    "optimizer": [
        ("^(max_norm|clip_value)$", ["0.1 * ({0})"]),
        ("^eps$", ["1e3 * ({0})"]),
        ("^betas$", ["({0})[::-1]"]),
        ("^momentum$", ["0.0"]),
        ("^(nesterov|amsgrad)$", ["(not ({0}))"]),
    ],
    "initialisation": [("^(std|initializer_range|gain)$", ["4 * ({0})"])],
    "regularisation": [
        ("^weight_decay$", ["10 * ({0})", "0.0"]),
        ("^(max_norm|clip_value)$", ['float("inf")']),
        ("^training$", ["False"]),
        ("^p$|dropout$", ["0.0"]),
    ],
}
"""For keyword arguments."""
_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "loss": {"cross_entropy": "nll_loss", "mse_loss": "l1_loss", "CrossEntropyLoss": "NLLLoss", "MSELoss": "L1Loss"},
    "optimizer": {"AdamW": "Adam", "Adam": "AdamW", "SGD": "Adam", "RMSprop": "Adam"},
    "initialisation": {
        "normal_": "uniform_", "uniform_": "normal_", "xavier_uniform_": "xavier_normal_", "zeros_": "ones_",
        "xavier_normal_": "xavier_uniform_", "kaiming_uniform_": "kaiming_normal_", "ones_": "zeros_",
        "kaiming_normal_": "kaiming_uniform_", "randn": "rand", "rand": "randn", "zeros": "ones", "ones": "zeros",
        "zeros_like": "ones_like", "ones_like": "zeros_like",
    },
    "activation": {
        "relu": "gelu", "gelu": "relu", "silu": "relu", "tanh": "sigmoid", "sigmoid": "tanh", "softmax": "log_softmax",
        "log_softmax": "softmax", "ReLU": "GELU", "GELU": "ReLU", "SiLU": "ReLU", "Tanh": "Sigmoid",
    },
    "regularisation": {"train": "eval"},
    "schedule": {"cos": "sin", "CosineAnnealingLR": "ConstantLR", "LinearLR": "ConstantLR"},
}  # fmt: skip
_SMOOTH: Final = frozenset({"relu", "gelu", "silu", "tanh", "sigmoid"})
_REDUCTIONS: Final = {"mean": "sum", "sum": "mean", "batchmean": "mean", "none": "mean"}


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The value that a node assigns to a name, with the name."""
    match node:
        case ast.keyword(arg=str(name), value=value) | ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=key)), *_], value=value):
            yield str(key), value


def _values(site: Site, table: Sequence[tuple[str, Sequence[str]]]) -> Iterator[Edit]:
    """Other values of the names in a table."""
    for name, value in _given(site.node):
        for names, others in table:
            if re.search(names, name):
                yield from (site.replace(value, other.format(site.code(value))) for other in others)


def _operator(group: str) -> Operator:
    """The edits of a group: those of the tables, and those of its own function."""
    names, own = _RENAMED.get(group, {}), _OWN.get(group)

    def operator(site: Site) -> Iterator[Edit]:
        if not isinstance(site.node, (ast.Call, ast.Assign, ast.keyword)):
            return
        match site.node:
            case ast.Call(func=ast.Attribute() | ast.Name() as function) as node if called(node) in names:
                yield site.rename(function, names[called(node)])
            case ast.Assign(targets=[ast.Name(id=name)]) as statement:
                for pattern, others in _ASSIGNED.get(group, ()):
                    for other in others if re.search(pattern, name) else ():
                        yield site.replace(statement, f"{site.code(statement)}; {name} = {other.format(name)}")
        yield from _values(site, _GIVEN.get(group, ()))
        if isinstance(site.node, ast.keyword):
            yield from _values(site, _KEYWORDS.get(group, ()))
        if own is not None:
            yield from own(site)

    return operator


def _order(site: Site) -> Iterator[Edit]:
    """Rows that are not shuffled."""
    match site.node:
        case ast.Call() as node if called(node) in ("shuffle", "randperm", "permutation"):
            if isinstance(site.parent, ast.Expr):
                yield site.replace(site.parent, "pass")
            elif called(node) == "randperm" and isinstance(node.func, ast.Attribute):
                words = [site.code(arg) for arg in node.args]
                yield site.replace(node, f"{site.code(node.func.value)}.arange({', '.join(words)})")


def _arguments(site: Site) -> Iterator[Edit]:
    """Labels of other rows, in a call."""
    given = (
        [*site.node.args, *(keyword.value for keyword in site.node.keywords)] if isinstance(site.node, ast.Call) else []
    )
    for argument in given:
        match argument:
            case ast.Name(id=name) | ast.Attribute(attr=name) if re.search(_LABELS, name):
                yield site.replace(argument, f"{site.code(argument)}.roll(1, 0)")


def _loss(site: Site) -> Iterator[Edit]:
    """Another reduction, or half the loss."""
    match site.node:
        case ast.keyword(arg="reduction", value=ast.Constant(value=kind) as value) if str(kind) in _REDUCTIONS:
            yield site.replace(value, repr(_REDUCTIONS[str(kind)]))
        case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
            yield site.replace(loss, f"(0.5 * {site.code(loss)})")


def _seed(site: Site) -> Iterator[Edit]:
    """The same seed everywhere."""
    match site.node:
        case ast.Call(args=[seed, *_]) as node if called(node) in ("manual_seed", "seed"):
            yield site.replace(seed, "0")


def _no_activation(site: Site) -> Iterator[Edit]:
    """No activation function."""
    match site.node:
        case ast.Call(args=[value], keywords=[]) as node if called(node) in _SMOOTH:
            yield site.replace(node, f"({site.code(value)})")


def _no_dropout(site: Site) -> Iterator[Edit]:
    """No dropout."""
    match site.node:
        case ast.Call(args=[*_, rate]) as node if called(node) in ("Dropout", "dropout"):
            yield site.replace(rate, "0.0")


_OWN: Final[Mapping[str, Operator]] = {
    "data": _order, "labels": _arguments, "loss": _loss, "initialisation": _seed, "activation": _no_activation,
    "regularisation": _no_dropout,
}  # fmt: skip
_GROUPS: Final = (
    "data", "labels", "loss", "optimizer", "rate", "initialisation", "activation", "regularisation", "schedule",
)  # fmt: skip
OPERATORS: Final[Mapping[str, Operator]] = {group: _operator(group) for group in _GROUPS}
"""By the catalogue's group."""

"""Operators for training code, after the catalogue of DeepCrime (Humbatova, Jahangirova and Tonella, 2021).

They know what a name stands for only by its text: `labels`, `lr`, `dropout`. Of the catalogue's 24 operators these have
a form here, by the catalogue's abbreviations:

    data             TRD deleted, TUD unbalanced, TAN noisy training data; HBS batch size, HDB batches of one
    labels           TCL changed, TCO overlapping labels
    loss             LCH changed loss function
    optimizer        OCH changed optimizer, OCG changed gradient clipping
    rate             HLR changed learning rate
    initialisation   WCI changed initial weights
    activation       ACH changed, ARM removed activation function
    regularisation   RCW changed, RRW removed weight decay; RCD changed dropout rate
    schedule         HNE changed number of epochs

The general operators on booleans plant WAB and WRB (`bias=True`). Four have no form here: AAL and RAW add what the code
does not have, RCP changes the patience of early stopping, and VRM removes the validation set.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from harness.running.planting.syntax import Edit, Operator, Site, called

__all__ = ["OPERATORS"]

_DATA: Final = re.compile(r"(^|_)(batch|inputs?|input_ids|tokens|rows|data|dataset|sequences?|images?)$")
_LABELS: Final = re.compile(r"(^|_)(labels?|targets?)$")
_LOSS: Final = re.compile(r"(^|_)(loss|losses|divergence|cross_entropy|kl)$")
_RATE: Final = re.compile(r"^(lr|learning_rate|base_lr|max_lr|peak_lr|min_lr)$")
_SCHEDULE: Final = re.compile(r"^(warmup|warmup_steps|total_steps|decay_steps|T_max|gamma|step_size)$")
_LENGTH: Final = re.compile(r"^(epochs|num_epochs|n_epochs|num_train_epochs|max_steps|num_steps|train_steps)$")
_BATCH: Final = re.compile(r"^(batch_size|micro_batch|micro_batch_size|per_device_train_batch_size)$")
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


def _assigned(node: ast.AST, names: re.Pattern[str]) -> str:
    """The name that a statement assigns, if it is one of these; else empty."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) if names.search(name):
            return name
    return ""


def _given(node: ast.AST, names: re.Pattern[str]) -> ast.expr | None:
    """The value that a keyword argument or an entry of a group of parameters gives to one of these names."""
    match node:
        case ast.keyword(arg=str(name), value=value) if names.search(name):
            return value
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=key)), *_], value=value):
            return value if names.search(str(key)) else None
        case ast.Assign(value=value) if _assigned(node, names):
            return value
    return None


def _arguments(node: ast.AST, names: re.Pattern[str]) -> Iterator[ast.expr]:
    """The arguments of a call that are names, or attributes, of this kind."""
    for argument in [*node.args, *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []:
        text = argument.id if isinstance(argument, ast.Name) else getattr(argument, "attr", "")
        if isinstance(argument, (ast.Name, ast.Attribute)) and names.search(text):
            yield argument


def _then(site: Site, name: str, statement: str) -> Iterator[Edit]:
    """Add a statement on the line of another one."""
    if isinstance(site.node, ast.stmt):
        yield site.replace(site.node, f"{site.code(site.node)}; {name} = {statement}")


def _data(site: Site) -> Iterator[Edit]:
    """Half of the rows; the first row in the place of all; a tenth of the values from beside; smaller batches."""
    if name := _assigned(site.node, _DATA):
        yield from _then(site, name, f"{name}[: max(1, len({name}) // 2)]")
        yield from _then(site, name, f"{name}[:1].expand_as({name})")
        kept = f"{name}.new_ones({name}.shape, dtype=float).bernoulli(0.9).bool()"
        yield from _then(site, name, f"{name}.where({kept}, {name}.roll(1, -1))")
    value = _given(site.node, _BATCH)
    if value is not None:
        yield site.replace(value, f"max(1, ({site.code(value)}) // 2)")
        yield site.replace(value, "1")
    if isinstance(site.node, ast.Call) and called(site.node) in ("shuffle", "randperm", "permutation"):
        if isinstance(site.parent, ast.Expr):
            yield site.replace(site.parent, "pass")
        elif called(site.node) == "randperm" and isinstance(site.node.func, ast.Attribute):
            words = [site.code(one) for one in site.node.args]
            yield site.replace(site.node, f"{site.code(site.node.func.value)}.arange({', '.join(words)})")


def _labels(site: Site) -> Iterator[Edit]:
    """Labels of other rows, or of the position before; two classes in one."""
    if name := _assigned(site.node, _LABELS):
        yield from _then(site, name, f"{name}.roll(1, 0)")
        yield from _then(site, name, f"{name}.roll(1, -1)")
        yield from _then(site, name, f"{name} // 2 * 2")
    for argument in _arguments(site.node, _LABELS):
        yield site.replace(argument, f"{site.code(argument)}.roll(1, 0)")


def _loss(site: Site) -> Iterator[Edit]:
    """Another function, reduction, scale or source of the loss."""
    if name := _assigned(site.node, _LOSS):
        yield from _then(site, name, f"{name} * 0.5")
        yield from _then(site, name, f"{name}.detach()")
    match site.node:
        case ast.keyword(arg="reduction", value=ast.Constant(value=kind) as value) if str(kind) in _REDUCTIONS:
            yield site.replace(value, repr(_REDUCTIONS[str(kind)]))
        case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
            yield site.replace(loss, f"(0.5 * {site.code(loss)})")


def _optimizer(site: Site) -> Iterator[Edit]:
    """Another optimizer, or one whose settings are forgotten; gradients that are clipped far too early."""
    match site.node:
        case ast.keyword(arg="max_norm" | "clip_value" | "eps" as name, value=value):
            yield site.replace(value, f"{'1e3' if name == 'eps' else '0.1'} * ({site.code(value)})")
        case ast.keyword(arg="betas", value=value):
            yield site.replace(value, f"({site.code(value)})[::-1]")
        case ast.keyword(arg="momentum", value=value):
            yield site.replace(value, "0.0")
        case ast.keyword(arg="nesterov" | "amsgrad", value=value):
            yield site.replace(value, f"(not ({site.code(value)}))")


def _rate(site: Site) -> Iterator[Edit]:
    """A learning rate ten times as high, or half as high."""
    value = _given(site.node, _RATE)
    if value is not None:
        yield site.replace(value, f"10 * ({site.code(value)})")
        yield site.replace(value, f"0.5 * ({site.code(value)})")


def _initialisation(site: Site) -> Iterator[Edit]:
    """Another scale, or the same seed for all."""
    match site.node:
        case ast.keyword(arg="std" | "initializer_range" | "gain", value=value):
            yield site.replace(value, f"4 * ({site.code(value)})")
        case ast.Call(args=[seed, *_]) as node if called(node) in ("manual_seed", "seed"):
            yield site.replace(seed, "0")


def _regularisation(site: Site) -> Iterator[Edit]:
    """No dropout, no weight decay or ten times as much, no clipping."""
    match site.node:
        case ast.keyword(arg="weight_decay", value=value):
            yield site.replace(value, f"10 * ({site.code(value)})")
            yield site.replace(value, "0.0")
        case ast.keyword(arg="max_norm" | "clip_value", value=value):
            yield site.replace(value, 'float("inf")')
        case ast.keyword(arg="training", value=value):
            yield site.replace(value, "False")
        case ast.keyword(arg=str(name), value=value) if name == "p" or name.endswith("dropout"):
            yield site.replace(value, "0.0")
        case ast.Call(args=[*_, rate]) as node if called(node) in ("Dropout", "dropout"):
            yield site.replace(rate, "0.0")


def _schedule(site: Site) -> Iterator[Edit]:
    """A warm-up or a decay of another length; half of the training."""
    value = _given(site.node, _SCHEDULE)
    if value is not None:
        yield site.replace(value, f"2 * ({site.code(value)})")
    value = _given(site.node, _LENGTH)
    if value is not None:
        yield site.replace(value, f"max(1, ({site.code(value)}) // 2)")


def _activation(site: Site) -> Iterator[Edit]:
    """No activation function."""
    match site.node:
        case ast.Call(args=[value], keywords=[]) as node if called(node) in _SMOOTH:
            yield site.replace(node, f"({site.code(value)})")


def _renaming(group: str, own: Operator) -> Operator:
    """A group's own operator, and another function for one of its functions."""
    names = _RENAMED.get(group, {})

    def operator(site: Site) -> Iterator[Edit]:
        match site.node:
            case ast.Call(func=ast.Attribute() | ast.Name() as function) as node if called(node) in names:
                yield site.rename(function, names[called(node)])
        yield from own(site)

    return operator


OPERATORS: Final[Mapping[str, Operator]] = {
    group: _renaming(group, own)
    for group, own in {
        "data": _data,
        "labels": _labels,
        "loss": _loss,
        "optimizer": _optimizer,
        "rate": _rate,
        "initialisation": _initialisation,
        "activation": _activation,
        "regularisation": _regularisation,
        "schedule": _schedule,
    }.items()
}
"""By the catalogue's group."""

"""`harness probe`: the memory that a training step will need, without a GPU."""

from __future__ import annotations

import os

import click

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import ExitStatus
from harness.cli.options import named_texts, value_of
from harness.tools.step_function import (
    arguments,
    document_of,
    found,
    refuse_unknown,
    refuse_unwritable,
    show,
    time_limit,
)

__all__ = ["command"]

_GIB = 1024**3


@click.command("probe", short_help="predict the memory of a training step, without a GPU")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("--set", "fixed", multiple=True, metavar="NAME=VALUE", help="An argument of the function.")
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME=V,V,…", help="Predict once for each of these values.")
@click.option("--device", default="H200", show_default=True, metavar="NAME", help="The GPU to assume.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The number of ranks; the process is rank 0.",
)
@click.option(
    "--device-memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GiB",
    help="The available memory, if less than the GPU's.",
)
@click.option("--json", "json_file", metavar="FILE|-", help="Also write JSON; with -, it replaces the table.")
@click.option("--html", "html_file", metavar="FILE", help="Also write a page with the memory over time.")
@time_limit
def command(
    target: str,
    fixed: tuple[str, ...],
    sweeps: tuple[str, ...],
    device: str,
    ranks: int,
    device_memory: float | None,
    json_file: str | None,
    html_file: str | None,
    seconds: float,
) -> ExitStatus:
    """Predict the peak memory of a training step, and say whether it fits.

    FUNCTION builds model, optimizer and inputs on "cuda" from its keyword arguments, and returns a callable that runs
    one step. The real code runs, the step twice, on tensors without memory; no GPU is used.

    Exit status: 0 if the step fits, 1 if it does not, 3 if the margin is smaller than the probe's error. With --sweep:
    0 if a value fits, 1 if none does. 2 if the probe cannot see through the step, or the step ends the process.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported, so that not even a context is created
    chosen = arguments(fixed)
    texts = named_texts(sweeps, "--sweep", "NAME=V,V,…")
    values = {name: [value_of(each) for each in text.split(",")] for name, text in texts.items()}

    from harness.tools.probe.page import probe_page
    from harness.tools.probe.text import probe_lines

    capacity = None if device_memory is None else int(device_memory * _GIB)
    refuse_unwritable(json_file, html_file)

    def predicted() -> JsonObject:
        from harness.tools.probe.errors import ProbeError
        from harness.tools.probe.sweep import document, swept

        function = found(target)
        refuse_unknown(target, function, {**chosen, **{name: several[0] for name, several in values.items()}})
        try:
            cases = list(swept(function, chosen, values, device=device, ranks=ranks, capacity=capacity))
        except ProbeError as error:
            raise click.ClickException(str(error)) from error
        return document(target, cases, values)

    output = document_of(predicted, seconds)
    show(output, json_file, html_file, probe_page, probe_lines)
    return _status([case["fit"] for case in output["cases"]])


def _status(fits: list[str]) -> ExitStatus:
    if "fits" in fits:
        return ExitStatus.PASS
    return ExitStatus.NOT_MEASURED if "unknown" in fits else ExitStatus.FAIL

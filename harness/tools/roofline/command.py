"""`harness roofline`: the measured roofs of this device, and a step's kernels under them."""

from __future__ import annotations

import click

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import ExitStatus
from harness.tools.step_function import arguments, document_of, found, refuse_unwritable, show, time_limit

__all__ = ["command"]


@click.command("roofline", short_help="measure the roofs of this device, and a step's kernels")
@click.argument("target", metavar="[MODULE:FUNCTION]", required=False)
@click.option("--set", "fixed", multiple=True, metavar="NAME=VALUE", help="An argument of the function.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="By default cuda, where torch sees it.")
@click.option("--again", is_flag=True, help="Measure the roofs again, although they are in the cache.")
@click.option("--json", "json_file", metavar="FILE|-", help="Also write JSON; with -, it replaces the tables.")
@click.option("--html", "html_file", metavar="FILE", help="Also write a page with the kernels under the roofs.")
@time_limit
def command(
    target: str | None,
    fixed: tuple[str, ...],
    device: str | None,
    again: bool,
    json_file: str | None,
    html_file: str | None,
    seconds: float,
) -> ExitStatus:
    """Measure the roofs of this device, and say how near to them the kernels of a step come.

    The roofs are copy, read and write bandwidth, the bandwidth of the last cache, products of random matrices by dtype,
    and the time of a launch. They are kept in the cache folder by device and driver.

    FUNCTION builds model, optimizer and inputs on the device, and returns a callable that runs one step.

    Exit status: 0; 1 if a kernel did more operations a second than the measured peak, which is then wrong;
    2 if the process of the step ended without a result.
    """
    chosen = arguments(fixed)
    refuse_unwritable(json_file, html_file)

    from harness.tools.roofline.page import roofline_page
    from harness.tools.roofline.text import roofline_lines

    def measured() -> JsonObject:
        from harness.tools.roofline.document import document
        from harness.tools.roofline.roofs import RooflineError

        build = None if target is None else found(target)
        try:
            return document(device, again, target, None if build is None else lambda: build(**chosen))
        except RooflineError as error:
            raise click.ClickException(str(error)) from error

    output = document_of(measured, seconds)
    show(output, json_file, html_file, roofline_page, roofline_lines)
    return ExitStatus.FAIL if output["step"] and output["step"]["above_peak"] else ExitStatus.PASS

"""`harness plant`: plants defects in the subjects of claims, and lists those that the falsifiers miss."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import click

from harness.base import regular_file, schemas, strictjson
from harness.base.vocabulary import ExitStatus
from harness.cli.options import device_option, duration, overrides, parameter_texts
from harness.contract.patch import Patch, PatchError
from harness.contract.project import Project
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import probe
from harness.report.terminal.printing import tell, tell_all
from harness.running.request import RunRequest
from harness.tools.planting.campaign import Sample, plant
from harness.tools.planting.results import Planted, Planting, as_json, survivors, written
from harness.tools.planting.text import fate_line, planting_lines

__all__ = ["command"]


def _part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]*)/([1-9][0-9]*)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise click.BadParameter(f"{text!r} is not a part such as 1/4 or 4/4")
    return int(match[1]), int(match[2])


@click.command("plant", short_help="plant defects in subjects; list those that falsifiers miss")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--budget", type=duration, default="20m", show_default=True, help="When to stop: 90s, 20m, 1h.")
@click.option(
    "--profile",
    type=click.Choice(["reduced", "full"]),
    default="reduced",
    show_default=True,
    help="How big the work of each trial is. A claim without this profile runs in its other one.",
)
@device_option
@click.option("-P", "parameters", multiple=True, metavar="KEY=VALUE", help="Change a parameter in every trial.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The seed of the trials and of the sample."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="The number of concurrent trials.")
@click.option(
    "--crowded",
    is_flag=True,
    help="Also run claims with an exclusive lease side by side: right if their profile measures neither time nor a "
    "device's memory.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Try only a representative sample of N defects.")
@click.option("--part", type=_part, default="1/1", metavar="K/N", help="Try only the K-th of N parts of the sample.")
@click.option(
    "--again",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Try only the defects that survived in this result of --json.",
)
@click.option(
    "--patches",
    "patch_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Try only the defects of this file: JSON that follows patches.schema.json.",
)
@click.option("--json", "json_file", metavar="FILE|-", help="Also write JSON; with -, it replaces the table.")
def command(
    ids: tuple[str, ...],
    budget: float,
    profile: str,
    device: str,
    parameters: tuple[str, ...],
    seed: int,
    jobs: int | None,
    crowded: bool,
    limit: int | None,
    part: tuple[int, int],
    again: Path | None,
    patch_file: Path | None,
    json_file: str | None,
) -> ExitStatus:
    """Plant defects in the subjects of claims, one at a time, and report which of them the falsifiers kill.

    Each subject first runs without a defect, to record which of its lines the claim reaches. Each defect changes one
    place on these lines, in a copy of the project; your files stay unchanged. The falsifiers that reach the place run
    on the copy, without mutants, those first that are likely to kill it quickly. The defect is killed if one claim is
    then FAIL. A surviving defect is one that no falsifier detects. Extend a falsifier until it kills the defect, and
    add the defect as a mutant; or write it with a reason into equivalent.json next to the contract.

    With --patches, the defects are your own. Each is tried by every claim that imports its file.

    Results are stored in the cache folder. Unless a source has changed, the same command continues an interrupted run.

    Exit status: 0 if no defect survived, 1 if a defect survived, 3 if no defect was killed and none survived.
    """
    project = Project.find()
    contracts = [project.contract(name) for name in project.matching(ids)]
    changed = overrides(parameter_texts(parameters), contracts)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    until = time.monotonic() + budget
    try:
        only = None if again is None else survivors(strictjson.loads(regular_file.read(again)))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.BadParameter(f"{again} is no result of --json: {error}", param_hint="--again") from error
    host, cache = probe(project.root), made_cache_folder()
    request = RunRequest(contracts, profile, device, parameters=changed, mutants=False, jobs=jobs, seed=seed)

    def tell_fate(planted: Planted, left: int) -> None:
        tell(fate_line(planted, left), err=True)

    sample, patches = Sample(limit, part, only), None if patch_file is None else _patches(patch_file)
    try:
        planting = plant(
            project, host, cache, request, until, tell_fate, sample=sample, patches=patches, crowded=crowded
        )
    except PatchError as error:
        raise click.BadParameter(f"{patch_file}: {error}", param_hint="--patches") from error
    return _reported(planting, seed, json_file)


def _patches(place: Path) -> dict[str, list[tuple[str, Patch]]]:
    """The patches of a file, by the file that they change, each with its kind."""
    try:
        document = strictjson.loads(regular_file.read(place))
        schemas.check("patches", document)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{place}: {error}", param_hint="--patches") from error
    by_file: dict[str, list[tuple[str, Patch]]] = {}
    for row in document["patches"]:
        patch = Patch(row["file"], row["within"], row["before"], row["after"])
        by_file.setdefault(row["file"], []).append((row["kind"], patch))
    return by_file


def _reported(planting: Planting, seed: int, json_file: str | None) -> ExitStatus:
    if json_file is not None:
        with click.open_file(json_file, "w", encoding="utf-8") as file:
            file.write(written(as_json(planting, seed)))
    if json_file != "-":
        tell_all(planting_lines(planting))
    if planting.interrupted:
        return ExitStatus.INTERRUPTED
    total = planting.total
    if total.survived:
        return ExitStatus.FAIL
    return ExitStatus.PASS if total.killed else ExitStatus.NOT_MEASURED

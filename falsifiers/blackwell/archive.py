"""The command for kernel archives: `python -m falsifiers.blackwell.archive build DIR`, `verify DIR`, `list DIR`.

Needs the extra `blackwell` (NVRTC from its wheel), but no GPU and no CUDA toolkit. Exit status: 0; 1 if `verify` finds
a fault; 2 if the command is refused.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from falsifiers.blackwell.archived.archive_check import NOT_IN_INDEX, check, not_reproduced
from falsifiers.blackwell.reference.kernel_archive import TARGETS, Archive, ArchiveError, build
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import SHAPES

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
_MODELS = click.option(
    "--model", "models", multiple=True, type=click.Choice(list(SHAPES)), help="Kernels of this model; all by default."
)
_TARGETS = click.option(
    "--sm",
    "targets",
    multiple=True,
    type=int,
    default=TARGETS,
    show_default=True,
    help="Compute capability, as in 121.",
)


@click.group(help=__doc__)
def main() -> None:
    """Build, verify or list an archive of kernels."""


@main.command("build")
@_FOLDER
@_MODELS
@_TARGETS
def build_command(folder: Path, models: Sequence[str], targets: Sequence[int]) -> None:
    """Build the archive DIR with exactly these kernels and targets.

    Images that are still right are kept, others are removed.
    """
    specs = _kernels(models)
    with click.progressbar(length=len(specs) * len(set(targets)), label="compiling") as bar:
        archive = build(folder, specs, targets, on_image=lambda entry: bar.update(1))
    size = sum((folder / entry.file).stat().st_size for entry in archive.entries.values())
    click.echo(f"{folder}: {len(archive.entries)} images, {size:,} bytes, {archive.compiler}")


@main.command("verify")
@_FOLDER
@_MODELS
@_TARGETS
@click.option("--rebuild", is_flag=True, help="Also compile everything again, and compare the bytes.")
def verify_command(folder: Path, models: Sequence[str], targets: Sequence[int], rebuild: bool) -> None:
    """Read every image of the archive, and compare it with the present sources."""
    archive, specs = Archive.open(folder), _kernels(models)
    result = check(archive, specs, targets)
    wrong = [line for name, lines in vars(result).items() if name != "cells" for line in lines]
    if rebuild:
        cells = [(spec, sm) for spec in specs for sm in targets]
        wrong += [f"{cell}: compiles to other bytes" for cell in not_reproduced(archive, cells)]
    for line in wrong:
        click.echo(line)
    faults = f"{len(wrong)} fault" + "s" * (len(wrong) != 1)
    click.echo(f"{folder}: {result.cells} images expected, {faults}")
    if any(line.endswith(NOT_IN_INDEX) for line in result.absent):
        click.echo("verify an archive of fewer kernels or targets with the --model and --sm that built it", err=True)
    if wrong or not result.cells:
        raise SystemExit(1)


@main.command("list")
@_FOLDER
def list_command(folder: Path) -> None:
    archive = Archive.open(folder)
    targets: dict[str, list[int]] = {}
    for kernel, sm in archive.entries:
        targets.setdefault(kernel, []).append(sm)
    for kernel, sms in targets.items():
        click.echo(f"{kernel}  {' '.join(f'sm_{sm}' for sm in sorted(sms))}")


def _kernels(models: Sequence[str]) -> list[KernelSpec]:
    specs = [spec for name in models or SHAPES for spec in block_kernels(SHAPES[name])]
    return list(dict.fromkeys(specs))


if __name__ == "__main__":
    try:
        main()
    except (ArchiveError, CompilationFailed, OSError, ValueError) as error:
        click.echo(f"archive: {error}", err=True)
        raise SystemExit(2) from error
    except ImportError as error:
        click.echo(f"archive: {error}; it is in the extra `blackwell` of the harness", err=True)
        raise SystemExit(2) from error

"""The PATHs of commands that take any number of bundles, and what was found at or below them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness.base.vocabulary import ExitStatus

__all__ = ["BundlePaths"]


@dataclass(frozen=True)
class BundlePaths:
    """What the paths led to."""

    bundles: tuple[Path, ...]
    """Each once, also where it lies below two of the paths."""
    no_folder: tuple[Path, ...]
    without: tuple[Path, ...]
    """Folders with no bundle at or below them."""

    @classmethod
    def find(cls, paths: Sequence[Path]) -> BundlePaths:
        """Look below each path."""
        from harness.evidence.verification import find_bundles

        found = {path: find_bundles([path]) for path in paths if path.is_dir()}
        bundles = {bundle.resolve(): bundle for some in found.values() for bundle in some}
        return cls(
            tuple(bundles.values()),
            tuple(path for path in paths if path not in found),
            tuple(path for path, some in found.items() if not some),
        )

    def tell(self, doing: str) -> None:
        """Say on standard error which paths led to nothing.

        Args:
            doing: what there is nothing to do for, such as "verify".
        """
        from harness.evidence.verification import no_folder
        from harness.report.escaping import printable

        for path in self.no_folder:
            click.echo(printable(f"{path}: {no_folder(path)}"), err=True)
        for path in self.without:
            click.echo(f"{printable(str(path))}: nothing to {doing}, there is no bundle below it", err=True)

    def status(self, *, accepted: bool) -> ExitStatus:
        """The exit status.

        Args:
            accepted: whether every bundle is.
        """
        if self.no_folder or not accepted:
            return ExitStatus.REFUSED
        return ExitStatus.NOT_MEASURED if self.without else ExitStatus.PASS

"""The bundles at or below the PATH arguments of a command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.base.vocabulary import ExitStatus
from harness.evidence.findings import Verification
from harness.evidence.verification import Against, find_bundles, no_folder, verify_all
from harness.report.terminal.printing import tell
from harness.report.terminal.progress_line import progress_line

__all__ = ["BundlePaths"]


@dataclass(frozen=True)
class BundlePaths:
    """The bundles at or below the paths."""

    bundles: tuple[Path, ...]
    """Each bundle once, even if it is below two of the paths."""
    no_folder: tuple[Path, ...]
    without: tuple[Path, ...]
    """The paths with no bundle at or below them."""

    @classmethod
    def find(cls, paths: Sequence[Path]) -> BundlePaths:
        """Find the bundles at or below each path."""
        bundles_of = {path: find_bundles([path]) for path in paths if path.is_dir()}
        # No link is followed below a path, so only the path itself can lead elsewhere.
        bundles = dict[str, Path]()
        for path, paths_below in bundles_of.items():
            real, above = os.path.realpath(path), len(path.parts)
            bundles |= {"/".join((real, *bundle.parts[above:])): bundle for bundle in paths_below}
        return cls(
            tuple(bundles.values()),
            tuple(path for path in paths if path not in bundles_of),
            tuple(path for path, paths_below in bundles_of.items() if not paths_below),
        )

    def verified(self, policy: Against) -> list[Verification]:
        """Verify the bundles, and show how many are done."""
        verifications: list[Verification] = []
        with progress_line("verifying bundles") as watch:
            for verification in verify_all(self.bundles, against=policy):
                verifications.append(verification)
                watch(len(verifications), len(self.bundles))
        return verifications

    def tell(self, doing: str) -> None:
        """Print on standard error which paths have no bundle.

        Args:
            doing: what the command does, such as "verify".
        """
        for path in self.no_folder:
            tell(f"{path}: {no_folder(path)}", err=True)
        for path in self.without:
            tell(f"{path}: nothing to {doing}: there is no bundle at or below it", err=True)

    def status(self, *, accepted: bool) -> ExitStatus:
        """Return the exit status.

        Args:
            accepted: whether every bundle is accepted.
        """
        if self.no_folder or not accepted:
            return ExitStatus.REFUSED
        return ExitStatus.NOT_MEASURED if self.without else ExitStatus.PASS

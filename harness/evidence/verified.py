"""`harness.verify`: verifies all bundles below a folder against the project of the current folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.contract.project import Project
from harness.evidence.findings import Code, Verification
from harness.evidence.verification import Against, find_bundles, no_folder, verify_all

__all__ = ["verify"]


def verify(
    path: str | Path, *, trusted_keys: Iterable[str | Path] = (), fail_on: Iterable[str] = ()
) -> tuple[Verification, ...]:
    """Verify the bundles at or below a path, as `harness verify` does: files, formats, and a second judgment.

        for verification in harness.verify("evidence"):
            print(verification.path, verification.verdict if verification.sound else verification.findings)

    This needs neither torch nor a GPU, and trusts no bundle. A defect becomes a finding, never an exception.
    Bundles are checked in child processes with limited time and memory. Staleness is checked against the project of
    the current folder; outside of a project it is not checked.

    Args:
        path: a bundle, or a folder with bundles at any depth.
        trusted_keys: files of public keys. If there are any, a bundle that none of them signed is not accepted.
        fail_on: the codes of remarks that an accepted bundle must not have, such as "STALE_CONTRACT".

    Returns:
        one `Verification` for each bundle, sorted by path. `sound`: it has no `findings`, which make a bundle unsound.
        `accepted`: it is sound and has none of the refused remarks. `verdict`, `reason` and `mutants` come from a
        second judgment. `remarks` state what the evidence does not cover.

    Raises:
        NotADirectoryError: the path is not a folder. The text says how to unpack an archive.
        KeyRefused: a file is not a usable public key.
        ValueError: `fail_on` has an unknown code.
        ProjectError: the project's settings are invalid.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} {no_folder(folder)}")
    policy = Against.of(map(Path, trusted_keys), Project.around(), frozenset(map(Code, fail_on)))
    return tuple(verify_all(find_bundles([folder]), against=policy))

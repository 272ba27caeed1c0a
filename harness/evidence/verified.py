"""`harness.verify`: every bundle below a folder, verified against the project around it."""

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

        for one in harness.verify("evidence"):
            print(one.path, one.verdict if one.sound else one.findings)

    It needs neither torch nor a GPU, and trusts no bundle: a defect becomes a finding, never an exception, and each
    bundle is checked in a process of its own with bounded time and memory. Whether evidence is stale depends on the
    project of the current folder; outside of a project it is not checked.

    Args:
        path: a bundle, or a folder with bundles at any depth.
        trusted_keys: files of public keys. If there are any, a bundle that none of them signed is not accepted.
        fail_on: the codes of remarks that an accepted bundle must not have, such as "STALE_CONTRACT".

    Returns:
        One `Verification` for each bundle, sorted by path; empty if there is none. `sound`: nothing is wrong with it.
        `accepted`: it is sound and has none of the refused remarks. `verdict`, `reason` and `mutants` are judged
        again. `findings` are what makes it unsound, and `remarks` what its evidence does not cover.

    Raises:
        NotADirectoryError: the path is not a folder. The text says how to unpack an archive.
        KeyRefused: a file is not a public key that can be used.
        ValueError: `fail_on` has a code that there is not.
        ProjectError: the project's settings are wrong.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} {no_folder(folder)}")
    policy = Against.of(map(Path, trusted_keys), Project.around(), frozenset(map(Code, fail_on)))
    return tuple(verify_all(find_bundles([folder]), against=policy))

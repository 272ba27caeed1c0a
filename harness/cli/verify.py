"""`harness verify`: checks that bundles are unchanged, and judges them again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.base.vocabulary import ExitStatus, Verdict
from harness.cli.bundle_paths import BundlePaths
from harness.cli.key_options import against, trusted_key_option
from harness.contract.project import Project
from harness.evidence.findings import NOT_ACCEPTED, Code, Severity, Verification
from harness.report.messages import finding_text
from harness.report.messages.finding_text import bundle_totals
from harness.report.messages.number_text import counted
from harness.report.terminal.printing import tell, tell_all, tell_json
from harness.report.terminal.verified_text import verified_lines

__all__ = ["command"]

_REMARKS = {str(code): code for code in Code if code.severity is Severity.REMARK}
_PROJECT = frozenset(
    {
        Code.STALE_CONTRACT,
        Code.STALE_FALSIFIER,
        Code.STALE_SUBJECT,
        Code.COMMIT_NOT_IN_HISTORY,
        Code.OTHER_HARNESS,
    }
)
"""Remarks that require a project."""


@click.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@trusted_key_option
@click.option("--fail-on", metavar="CODE,…", multiple=True, help="Remarks that count as failures; `any` means all.")
@click.option("-v", "--verbose", is_flag=True, help="Show the remarks below each bundle, not grouped.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    paths: tuple[Path, ...], trusted_keys: tuple[Path, ...], fail_on: tuple[str, ...], verbose: bool, as_json: bool
) -> ExitStatus:
    """Verify the bundles at or below each PATH: files, formats, and a second judgment.

    It needs neither torch nor a GPU. The printed verdict is what the contract and the measurements say now. Bundles
    that are not a sound and proven PASS come first. Remarks that bundles share come last, once each.

    A bundle is unsound if it is INCOMPLETE, TAMPERED, INVALID, REJUDGED_DIFFERENTLY or FORGED. A sound one may have
    remarks: UNSIGNED, UNKNOWN_KEY, STALE_CONTRACT, STALE_FALSIFIER, STALE_SUBJECT, COMMIT_NOT_IN_HISTORY, DIRTY_TREE,
    WRONG_TARGET, REDUCED_PROFILE, MUTANTS_SKIPPED, OVERRIDDEN, OTHER_SUBJECT, CLOCK_AHEAD, OTHER_HARNESS,
    UNPLANTED. They change the exit status only if --fail-on names them. Whether a bundle is stale depends on the
    project of the current folder.

    Verdicts do not change the exit status: a bundle that says FAIL can be sound. It is 2 if a bundle is unsound,
    unfinished or not accepted, or a PATH is not a folder; else 3 if a PATH has no bundle below it; else 0.
    """
    policy = against(trusted_keys, Project.around(), _codes(fail_on))
    if policy.refused & _PROJECT and policy.state is None:
        needs = min(policy.refused & _PROJECT)
        raise click.BadParameter(f"{needs} needs a project to ask; run it in one", param_hint="--fail-on")
    paths_of_bundles = BundlePaths.find(paths)
    verifications = paths_of_bundles.verified(policy)
    if as_json:
        _print_json(verifications, paths_of_bundles)
    else:
        tell_all(verified_lines(verifications, verbose))
        paths_of_bundles.tell("verify")
        tell(f"{counted(len(verifications), 'bundle')}: {bundle_totals(verifications)}")
        if policy.state is None and verifications:
            tell("staleness was not checked, because this folder belongs to no project")
    return paths_of_bundles.status(accepted=all(verification.accepted for verification in verifications))


def _codes(texts: Sequence[str]) -> frozenset[Code]:
    names = [name.strip().upper() for text in texts for name in text.split(",")]
    if "ANY" in names:
        return frozenset(_REMARKS.values())
    for name in names:
        if name not in _REMARKS:
            known = ", ".join(_REMARKS)
            why = "makes a bundle unsound, which fails always" if name in Code.__members__ else "is no remark"
            raise click.BadParameter(f"{name or 'an empty name'} {why}; remarks: any, {known}", param_hint="--fail-on")
    return frozenset(_REMARKS[name] for name in names)


def _print_json(verifications: Sequence[Verification], paths_of_bundles: BundlePaths) -> None:
    sound = [verification for verification in verifications if verification.sound]
    document: dict[str, Any] = {
        "format": 1,
        "bundles": [finding_text.document(verification) for verification in verifications],
        "no_folder": [str(path) for path in paths_of_bundles.no_folder],
        "without_bundles": [str(path) for path in paths_of_bundles.without],
        "total": {
            "bundles": len(verifications),
            "sound": len(sound),
            "unsound": len(verifications) - len(sound),
            "not_accepted": sum(verification.standing == NOT_ACCEPTED for verification in verifications),
            "verdicts": {
                verdict: sum(verification.verdict is verdict for verification in sound) for verdict in Verdict
            },
        },
    }
    tell_json(document)

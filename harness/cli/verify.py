"""`harness verify`: whether bundles are as they were sealed, and what they say when judged again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.verdict import ExitStatus, Verdict

if TYPE_CHECKING:
    from harness.evidence.findings import Verification

__all__ = ["command"]


@click.command("verify")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> ExitStatus:
    """Verify the bundles at or below each PATH: their files, their formats, and their judgment made again.

    Neither torch nor a GPU is needed. What is printed as the verdict is what contract and observations say now.

    The verdicts do not change the exit status: a sound bundle that says FAIL is sound. It is 2 where a bundle is
    unsound, unfinished, or a PATH is no folder; else 3 where a PATH has no bundle below it; else 0.
    """
    from harness.evidence.verify import find_bundles, verify

    unusable = [path for path in paths if not path.is_dir()]
    found = {path: find_bundles([path]) for path in paths if path not in unusable}
    empty = [path for path, bundles in found.items() if not bundles]
    # A bundle below two of the paths is verified, and counted, once.
    bundles = list({bundle.resolve(): bundle for some in found.values() for bundle in some}.values())
    verifications = []
    for bundle in bundles:
        verifications.append(verify(bundle))
        if not as_json:
            _show(verifications[-1])
    if as_json:
        _print_json(verifications, unusable, empty)
    else:
        for path in unusable:
            click.echo(f"{_plain(str(path))}: is no folder; name a bundle or a folder of bundles", err=True)
        for path in empty:
            click.echo(f"{_plain(str(path))}: nothing to verify, there is no bundle below it", err=True)
        click.echo(_denominator(verifications))
    if unusable or not all(one.sound for one in verifications):
        return ExitStatus.REFUSED
    return ExitStatus.NOT_MEASURED if empty else ExitStatus.PASS


def _show(one: Verification) -> None:
    click.echo(_plain("  ".join(_line(one))))
    for finding in one.findings:
        click.echo(f"  {_plain(str(finding))}")


def _line(one: Verification) -> list[str]:
    verdict = str(one.verdict) if one.verdict else "no verdict"
    parts = [verdict if one.sound else f"UNSOUND ({verdict})"]
    if one.id is not None:
        parts += [one.id, f"{one.profile} profile", str(one.device)]
    if one.verdict is not None:
        parts.append("proven" if one.proven else "UNPROVEN")
    if one.overrides:
        parts.append("overridden: " + ", ".join(f"{name}={value}" for name, value in one.overrides.items()))
    if one.subject is not None:
        parts.append(f"subject {one.subject}")
    if one.reason:
        parts.append(one.reason)
    return [*parts, str(one.path)]


def _denominator(verifications: Sequence[Verification]) -> str:
    sound = [one for one in verifications if one.sound]
    counts = Counter(one.verdict for one in sound)
    of_sound = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    total = len(verifications)
    bundles = f"{total} bundle{'' if total == 1 else 's'}"
    return f"{bundles}: {len(sound)} sound, {total - len(sound)} unsound; of the sound: {of_sound}"


def _print_json(verifications: Sequence[Verification], unusable: Sequence[Path], empty: Sequence[Path]) -> None:
    import json

    from harness import strictjson

    sound = [one for one in verifications if one.sound]
    document: dict[str, Any] = {
        "bundles": [one.to_json() for one in verifications],
        "no_folder": [str(path) for path in unusable],
        "without_bundles": [str(path) for path in empty],
        "total": {
            "bundles": len(verifications),
            "sound": len(sound),
            "unsound": len(verifications) - len(sound),
            "verdicts": {verdict: sum(one.verdict is verdict for one in sound) for verdict in Verdict},
        },
    }
    # Names of files may be no UTF-8: what has none is escaped.
    click.echo(json.dumps(strictjson.tag_nonfinite(document), indent=2, allow_nan=False))


def _plain(text: str) -> str:
    from harness.report.escaping import printable

    return printable(text)

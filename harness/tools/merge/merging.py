"""Merging: the bundles of several hosts in one folder of evidence.

    merged = merge(find_bundles([Path("host-a"), Path("host-b")]), Path("evidence"))
    for refusal in merged.left_out:
        print(refusal.bundle.path, refusal.differs or refusal.bundle.findings)

Hosts are not trusted. A bundle is merged if it is sound and no other bundle has its place. Its files are copied byte
for byte. An unsound bundle is left out, and so is a bundle whose run is known with other content: nothing says which
of the two is true. What is merged comes as a whole: after an error, nothing was written.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from harness.base.beneath import Beneath
from harness.evidence import manifest, untrusted
from harness.evidence.atomic_dir import sync_tree
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.verification import Verification, verify_all
from harness.tools.merge.merged_before import MergedBefore, state_of_files
from harness.tools.merge.staging import Place, at, content, difference, digests, hidden_folder, made, move

__all__ = ["LeftOut", "Merged", "merge"]


@final
@dataclass(frozen=True)
class LeftOut:
    """A bundle that is not merged: it is unsound, or another bundle has its place."""

    bundle: Verification
    other: Path | None = None
    """The bundle of the same run with other content; None if this one is unsound."""
    differs: str = ""
    """The first file that differs from the other's; "." for the folder itself."""


@final
@dataclass(frozen=True)
class Merged:
    """The result of a merge. Bundles are in the order of the arguments."""

    new: tuple[Verification, ...]
    """At their new places."""
    there: tuple[Path, ...]
    """The places where the same bundle was already, byte for byte; also that of a second copy of a new one."""
    left_out: tuple[LeftOut, ...]


def merge(bundles: Sequence[Path], into: Path) -> Merged:
    """Copy bundles to <into>/<issue>/<claim>/<run>. No link below a bundle or below `into` is followed.

    A bundle that an earlier merge found there already is not read again while no file of the two changed.

    Raises:
        OSError: a file cannot be read or written, or a bundle changes meanwhile. Nothing was written.
    """
    before = MergedBefore(into)
    known = before.places(bundles)
    states = {bundle: state_of_files(Beneath(bundle)) for bundle in bundles if bundle not in known}
    contents: dict[Place, dict[Path, dict[str, str]]] = {}
    left_out, sound = [], []
    for bundle in verify_all([*states]):
        if bundle.sound and bundle.issue and bundle.id and bundle.run:
            place = (bundle.issue, bundle.id, bundle.run)
            contents.setdefault(place, {})[bundle.path] = _sealed(bundle)
            sound.append((place, bundle))
        else:
            left_out.append(LeftOut(bundle))
    present, theirs = {}, {}
    for place in contents:
        if at(into, place).status() is not None:
            theirs[place] = state_of_files(at(into, place))
            present[place] = content(into, place)
    new, there, copied = [], [*known.values()], set()
    for place, bundle in sound:
        rivals = {path: content for path, content in contents[place].items() if path != bundle.path}
        if place in present:
            rivals = {at(into, place).path: present[place]}
        mine = contents[place][bundle.path]
        other = next((path for path, content in rivals.items() if content != mine), None)
        if other is not None:
            left_out.append(LeftOut(bundle, other, difference(mine, rivals[other])))
        elif place in present or place in copied:
            there.append(at(into, place).path)
        else:
            copied.add(place)
            new.append((place, bundle))
    if new:
        with made(Beneath(into)), hidden_folder(into) as hidden:
            for place, bundle in new:
                _copy(bundle.path, contents[place][bundle.path], at(hidden, place))
                theirs[place] = state_of_files(at(hidden, place))
            sync_tree(Beneath(hidden))
            move(hidden, into, [place for place, _ in new])
    refused = {refusal.bundle.path for refusal in left_out}
    for place, bundle in sound:
        if bundle.path not in refused:
            before.add(bundle.path, states[bundle.path], place, theirs[place])
    before.save()
    arrived = tuple(replace(bundle, path=at(into, place).path) for place, bundle in new)
    return Merged(arrived, tuple(there), tuple(left_out))


def _sealed(bundle: Verification) -> dict[str, str]:
    """Return the digest of every file of a sound bundle; OSError if they are not those that were verified."""
    sums = dict(digests(bundle.path))
    content, digest = untrusted.read(bundle.path, MANIFEST)
    if not digest == sums.get(MANIFEST) == bundle.manifest or not manifest.parse(content).items() <= sums.items():
        raise _changed(bundle.path)
    return sums


def _copy(source: Path, content: dict[str, str], target: Beneath) -> None:
    for name, digest in content.items():
        place = target / name
        place.parent.make_folder()
        with place.create() as output:
            if untrusted.digest(source, name, output) != digest:
                raise _changed(source)


def _changed(bundle: Path) -> OSError:
    return OSError(errno.EBUSY, "changed while it was merged; merge again", str(bundle))

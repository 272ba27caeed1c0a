"""What verifying said of bundles, in words: who signed them, and what they were held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from harness.base.vocabulary import Verdict
from harness.evidence.findings import NOT_ACCEPTED, Code, Verification
from harness.report import reason_text
from harness.report.verdict_text import Caveat
from harness.report.verdict_text import Code as Mono

if TYPE_CHECKING:
    from harness.evidence.verification import Against

__all__ = ["asked", "denominator", "line", "signature", "signed"]

_KEY_LETTERS = 12
"""Of a key's id, where it is only to be recognized."""


def denominator(verifications: Sequence[Verification]) -> str:
    """How many bundles there are, and what they are."""
    sound = [one for one in verifications if one.sound]
    verdicts = ", ".join(f"{sum(one.verdict is verdict for one in sound)} {verdict}" for verdict in Verdict)
    refused = sum(one.standing == NOT_ACCEPTED for one in sound)
    return (
        f"{len(sound)} sound, {len(verifications) - len(sound)} unsound; of the sound: {verdicts}"
        f"{f'; {refused} of them not accepted' if refused else ''}"
    )


def line(one: Verification) -> str:
    """A bundle with its verdict, all that makes it another than it looks, and its place, in a line."""
    parts = [one.standing if one.accepted else f"{one.standing} ({one.verdict or 'no verdict'})"]
    if one.id is not None:
        parts += [one.id, f"{one.profile} profile", str(one.device)]
    if one.verdict is not None:
        parts.append("proven" if one.proven else "UNPROVEN")
    if one.signed_by:
        parts.append("signed by " + ", ".join(key[:_KEY_LETTERS] for key in one.signed_by))
    if one.overrides:
        parts.append("overridden: " + ", ".join(f"{name}={value}" for name, value in one.overrides.items()))
    if one.subject is not None:
        parts.append(f"subject {one.subject}")
    if one.reason:
        parts.append(reason_text.of(one.reason))
    return "  ".join([*parts, str(one.path)])


def signed(one: Verification) -> str:
    """Who signed a bundle, in a few words."""
    codes = {finding.code for finding in (*one.findings, *one.remarks)}
    if Code.FORGED in codes:
        return "forged attestation"
    if Code.UNSIGNED in codes:
        return "unsigned"
    if Code.UNKNOWN_KEY in codes:
        return "signed by an unknown key"
    if one.signed_by:
        return f"signed by {', '.join(key[:_KEY_LETTERS] for key in one.signed_by)}"
    return "signed by nobody as it is"


def signature(one: Verification) -> Caveat:
    """Who signed a bundle, and what that is worth, as a heading and what follows it."""
    found = {finding.code: finding for finding in reversed((*one.findings, *one.remarks))}
    if Code.FORGED in found:
        return Caveat("The attestation is forged", (_sentence(found[Code.FORGED].message),), Code.FORGED)
    if Code.UNSIGNED in found:
        return Caveat("Unsigned", (_sentence(found[Code.UNSIGNED].message),), Code.UNSIGNED)
    if Code.UNKNOWN_KEY in found:
        text = f"{_sentence(found[Code.UNKNOWN_KEY].message)}. No signature was checked that is not of a trusted key"
        return Caveat("Signed by an unknown key", (text,), Code.UNKNOWN_KEY)
    if one.signed_by:
        keys = _listed(one.signed_by)
        if len(one.signed_by) > 1:
            return Caveat("Signed by trusted keys", ("Keys ", *keys, ": the signatures verify, over every file"))
        return Caveat("Signed by a trusted key", ("Key ", *keys, ": the signature verifies, over every file"))
    changed = dict.fromkeys(finding.file for finding in one.findings if finding.code is Code.TAMPERED if finding.file)
    if changed:
        covers = "A signature covers the files as the manifest lists them, and these are others: "
        return Caveat("Signed by nobody as it is", (covers, *_listed(list(changed))))
    first = "What is wrong with the bundle comes first, and no signature mends it"
    return Caveat("Signed by nobody as it is", (first,))


def asked(against: Against) -> Iterator[Sequence[str]]:
    """What bundles were held against, as sentences up to and without the full stop."""
    if against.state is None:
        yield ("Whether the code has moved on was not asked, for that needs a project",)
    else:
        commit = against.state.commit
        state = {True: ", with changes in the checkout", False: "", None: ""}[commit.dirty]
        where = (" at commit ", Mono(commit.revision[:_KEY_LETTERS])) if commit.revision else (" without a commit",)
        yield ("Whether the code has moved on was asked of the project", *where, state)
    if against.trusted:
        yield ("Trusted was ", *_listed(list(against.trusted)), ": what it did not sign is not accepted")
    else:
        yield ("No key was named as trusted (", Mono("--trusted-key"), "), so no signature was checked")


def _listed(names: Sequence[str]) -> list[str]:
    """Ids of keys, or files, with commas between them."""
    parts: list[str] = []
    for name in names:
        parts += [", ", Mono(name)] if parts else [Mono(name)]
    return parts


def _sentence(message: str) -> str:
    """What goes on after a code, as something that stands alone."""
    return message[:1].upper() + message[1:]

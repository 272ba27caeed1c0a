"""Findings of verification in words: the sentence for every detail of `harness.evidence.findings`."""

from __future__ import annotations

from typing import Any

from harness.contract.reasons import Reason
from harness.evidence.findings import Detail, Finding, Verification
from harness.report.messages import reason_text

__all__ = ["SENTENCES", "document", "line", "message", "problem"]

_LONGEST = 600


def message(finding: Finding) -> str:
    """Return what was found, without the full stop."""
    fields = {name: _shown(name, value) for name, value in finding.fields.items()}
    return SENTENCES[finding.detail].format_map(fields)[:_LONGEST]


def line(finding: Finding) -> str:
    """Return a finding with its code and place."""
    place = f" {finding.place}:" if finding.place else ""
    return f"{finding.code}{place} {message(finding)}"


def problem(verification: Verification) -> str:
    """Return the first objection to a bundle, and the number of further ones; empty if there is none."""
    if not verification.objections:
        return ""
    first, *others = verification.objections
    return line(first) + (f", and {len(others)} more" if others else "")


def document(verification: Verification) -> dict[str, Any]:
    """Return the result of verifying a bundle as JSON values, with the sentences."""
    plain = verification.to_json()
    for name, findings in (("findings", verification.findings), ("remarks", verification.remarks)):
        plain[name] = [{**one, "message": message(of)} for one, of in zip(plain[name], findings, strict=True)]
    return {**plain, "reason": reason_text.of(verification.reason)}


def _shown(name: str, value: Any) -> str:
    match name, value:
        case "reason", _:
            return "" if value is None else f": {reason_text.of(Reason.from_json(value))}"
        case "remedy", _:
            return f" ({value})" if value else ""
        case "more", _:
            return f" and {value} more" if value else ""
        case _, list():
            return ", ".join(value)
        case _, None:
            return "missing"
        case _, bool():
            return str(value).lower()
    return str(value)


SENTENCES: dict[Detail, str] = {
    Detail.BEING_UNPACKED: (
        "is being merged, or that was interrupted; the next `harness merge` there removes what is left"
    ),
    Detail.UNFINISHED: (
        "was never finished: it is being written, or its writer died; the claim's next run removes what is left"
    ),
    Detail.NO_FOLDER: "is no folder",
    Detail.IN_UNFINISHED: "lies in {folder}: it was never finished",
    Detail.TOO_LARGE: "{text}; it was not read",
    Detail.REFUSED_FILE: "{text}",
    Detail.NO_MANIFEST: "is missing: the bundle was not sealed, or is not one",
    Detail.MISSING: "is missing: the manifest lists it",
    Detail.CHANGED: "was changed: its sha256 is not the manifest's",
    Detail.ADDED: "was added: the manifest does not list it",
    Detail.EMPTY_FOLDER: "was added: an empty folder, and a bundle has none",
    Detail.NO_PART: "is no file of a bundle",
    Detail.REQUIRED: "is missing: every bundle has it",
    Detail.NO_INDEX: "is missing: it lists the artifacts",
    Detail.UNLISTED_ARTIFACT: "does not list {artifact}",
    Detail.NO_COPY: "is missing: the index lists it as copied",
    Detail.TOO_MANY_COPIES: "has {copies} copies; a bundle has at most {most}",
    Detail.PROBLEM: "{text}{remedy}",
    Detail.CHECK_FAILED: "cannot be verified: {error}",
    Detail.CHECK_STOPPED: "could not be verified: {text}; a bundle that the harness wrote does not cause this",
    Detail.MORE: "and {count} more findings",
    Detail.OTHERWISE_DERIVED: "the record has {then}; contract and observations give {now}",
    Detail.RAN_OTHERWISE: "{name} is {found}, not {expected}: the trial did not run as asked",
    Detail.NO_PROFILE: "the contract has no {profile} profile",
    Detail.MUTANT_UNLISTED: "the record does not list this mutant",
    Detail.MUTANT_COULD_RUN: "{mutant} was not run, but this device has all that it requires{reason}",
    Detail.MUTANT_FAILED_OTHERS: "{mutant} failed other clauses than the record says",
    Detail.NO_TRIAL: "has no trial of {mutant}, though the record says that it was {fate}",
    Detail.OTHER_ROWS: "the record has {then} rows; {series} has {now}",
    Detail.NO_LOG: "has no log of what the {trial} did",
    Detail.OTHER_LOG: "the record has another size or sha256 than {log}",
    Detail.UNTRUE_LOG: "the {stream} of the {trial} is not the output that its heading names by size and sha256",
    Detail.LOG_OF_NO_TRIAL: "has output of the {trial}, but the bundle has no such trial",
    Detail.CASE_SPARES: "says that it violates {clause}; judged now, that is not so",
    Detail.CASE_VIOLATES: "says that it does not violate {clause}; judged now, that is not so",
    Detail.OTHER_FOLDER: "is '{name}', but the bundle lies in the folder '{folder}'",
    Detail.NO_TIME: "is no point in time: {text}",
    Detail.NO_DEVICE: "the record has {device}; {environment} lists no such device",
    Detail.NOT_SIGNED: "there is no {attestation}: the bundle is not signed",
    Detail.NOT_BY_KEY: "is not the trusted key's: {key} did not sign this",
    Detail.SIGNERS_NOT_TRUSTED: "signed in the name of {keys}; none of them was named as trusted",
    Detail.NO_KEY_TRUSTED: "signed in the name of {keys}; say which key you trust with --trusted-key",
    Detail.STATES_TOO_MUCH: "its statement: has '{name}', which no statement of ours has",
    Detail.STATES_TOO_LITTLE: "its statement: lacks '{name}'",
    Detail.OTHER_LENGTH: "its statement: has {found} items; the bundle makes {expected}",
    Detail.OTHER_STATEMENT: "its statement: says {found}; the bundle says {expected}",
    Detail.MORE_STATED: "and there is more in it that the bundle does not say",
    Detail.CHECKOUT_CHANGED: "the checkout had changes that are in no commit",
    Detail.CHECKOUT_UNKNOWN: "it is not known whether the checkout had any: {text}",
    Detail.OTHER_HARDWARE: "the claim speaks of {target}; this is {device}",
    Detail.OTHER_PROFILE: "the claim speaks of the full profile; this is the {profile} one ({why})",
    Detail.CLAUSES_NOT_JUDGED: (
        "the claim speaks of the full profile; this is the {profile} one ({why}); not judged: {clauses}"
    ),
    Detail.SKIPPED: "the mutants were skipped: nothing shows that this falsifier could have failed",
    Detail.OVERRIDDEN: "this run has other parameters than the contract's: {names}{more}",
    Detail.OTHER_SUBJECT: "measured was {measured}, not {declared}",
    Detail.CLOCK_AHEAD: (
        "it says {started}, and by this machine's clock it is {now}: one of the two clocks is wrong; "
        "a PASS counts as the oldest of its claim's runs, a FAIL or VOID as the newest"
    ),
    Detail.END_AHEAD: (
        "it says that it began at {started} and ran for {seconds} seconds, and by this machine's clock it is {now}: "
        "one of the clocks is wrong"
    ),
    Detail.NO_CONTRACT: "this project has no contract of this claim",
    Detail.CONTRACT_CHANGED: "the claim's contract was changed since",
    Detail.FILES_GONE: "not there any more: {names}{more}",
    Detail.FILES_CHANGED: "changed since it was measured: {names}{more}",
    Detail.NO_FILES: "the record lists none of the files that it uses",
    Detail.NEVER_PLANTED: "the claim has no planting score: nothing shows which defects its falsifier misses",
    Detail.NOT_PLANTED: "no defects were planted in the measured {names}{more}",
    Detail.NOT_IN_HISTORY: "{text}",
    Detail.OTHER_VERSION: "another state of the harness measured it: version {version}",
    Detail.OTHER_CHECKOUT: "another state of the harness measured it: a checkout that was not installed",
}

"""What a reader must know before taking a verdict for more than it is; every report for people says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.record import MutantRecord, Record
from harness.report import figures
from harness.verdict import Fate, Verdict

__all__ = ["Caveat", "Code", "capability", "caveats", "narrowed"]


class Code(str):
    """A text that stands in a monospaced face: a name, a digest, a parameter with its value."""

    __slots__ = ()


@dataclass(frozen=True)
class Caveat:
    """A heading of a few words and what follows it, up to and without the full stop."""

    head: str
    text: tuple[str, ...]
    """Parts to be written one after the other; each is plain, or `Code`."""


def caveats(record: Record) -> Iterator[Caveat]:
    """Everything that narrows what the run says, weightiest first."""
    if not record.proven:
        why = (
            "the mutants were skipped"
            if record.mutants_skipped
            else "not every mutant that ran was killed, or none ran"
        )
        yield Caveat("Unproven", (f": nothing shows that this falsifier could have failed ({why})",))
    if record.overrides:
        changed = _listed((Code(f"{name}={figures.value(value)}"),) for name, value in record.overrides.items())
        said = ". The run speaks of other parameters than the contract's"
        yield Caveat("Overridden", (": ", *changed, said))
    idle = [mutant for mutant in record.mutants if mutant.fate is Fate.NOT_RUN]
    if idle and not record.mutants_skipped:
        reasons: dict[str, list[MutantRecord]] = {}
        for mutant in idle:
            reasons.setdefault(mutant.reason, []).append(mutant)
        names = _listed(
            (*_listed((Code(mutant.id),) for mutant in alike), f" ({reason})") for reason, alike in reasons.items()
        )
        yield Caveat(f"{len(idle)} of {len(record.mutants)} mutants not run", (": ", *names))
    if record.profile != "full":
        said = f": the claim speaks of the full one ({record.profile_reason})"
        omitted = _listed((Code(clause),) for clause in record.left_out)
        rest = ("; not measured, and not judged: ", *omitted) if record.unjudged else ()
        yield Caveat(f"{record.profile.capitalize()} profile", (said, *rest))
    if not record.on_target:
        target = [record.target.get("device"), capability(record.target)]
        said = f": it speaks of {', '.join(str(part) for part in target if part)}"
        yield Caveat("Not the claim's hardware", (said,))
    commit = record.commit
    if commit.get("revision") is None:
        yield Caveat("No commit", (f": {commit.get('reason') or 'it is not known which code ran'}",))
    elif commit.get("dirty") is not False:
        state = "had changes that are in no commit" if commit.get("dirty") else "may have had changes"
        yield Caveat("Dirty tree", (f": the checkout {state}; the digests below say which files ran",))


def narrowed(record: Record) -> list[str]:
    """What makes a PASS so much less that it must stand beside it, in a few words each; nothing for other verdicts."""
    if record.verdict is not Verdict.PASS:
        return []
    said = {
        "unproven": not record.proven,
        "parameters overridden": bool(record.overrides),
        f"{record.profile} profile": record.profile != "full",
    }
    return [text for text, applies in said.items() if applies]


def capability(of: Mapping[str, Any]) -> str:
    """The compute capability of a device or a target, in words; empty where there is none."""
    return f"compute capability {of['compute_capability']}" if of.get("compute_capability") else ""


def _listed(items: Iterable[Sequence[str]]) -> Iterator[str]:
    """The parts of several things with commas between them."""
    for index, parts in enumerate(items):
        if index:
            yield ", "
        yield from parts

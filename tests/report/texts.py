"""Records with unusual texts in every field, to test the writers of reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from harness.base.device import Device
from harness.contract.bound import Bound
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import Record
from tests.evidence.factory import claim_result

__all__ = ["nasty", "with_texts"]

nasty = st.text(
    st.characters() | st.sampled_from("|<>&\"'`*_[]()#@\\\n\r\t\0\x1b\u202e\udcff\ufffe\u2028]]>"), max_size=30
)


def with_texts(folder: Path, text: str) -> Record:
    """A record with this text in every field whose text does not come from the harness."""
    record = claim_result(folder, mutants={"forgets-one": {}, "stops-early": {"returned": ...}}).record
    reason = Reason(ReasonCode.CANNOT_BE_EVALUATED, text, text, clauses=(text,))
    clauses = [
        replace(clause, reason=reason, bound=Bound("const", text), unit=text, value={text: [text, 1.5, float("nan")]})
        for clause in record.clauses
    ]
    mutants = [replace(mutant, defect=text, reason=reason) for mutant in record.mutants]
    return replace(
        record,
        title=text,
        reason=reason,
        profile_reason=text,
        command=text,
        overrides={"model": text},
        resolved={"device": text},
        device=Device("cpu", text, text),
        target={"device": text},
        commit={"revision": None, "dirty": None, "reason": text},
        harness={"version": text},
        sources={text: "a" * 64},
        clauses=tuple(clauses),
        mutants=tuple(mutants),
    )

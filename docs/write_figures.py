"""The measurements of claims that README.md and docs/ state. Before each stands a comment that says where it is from.

    <!-- F-PD-SHARD-FLOOR-001: self.per_device_gib -->4.3 GiB

The expression is CEL, as in a contract's rules: `self` has the measurements, `record` the bundle's record.

    python docs/write_figures.py

writes the figures of the newest bundles in the full profile, with as many decimals as the page has, and the run that
README.md shows, of the reduced profile. It prints the figures that changed. tests/test_docs.py compares the pages with
the bundles.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.base.vocabulary import Verdict
from harness.contract.expression import engine
from harness.evidence.bundle import Bundle
from harness.evidence.bundle_layout import OBSERVATION, RECORD
from harness.evidence.index import Entry, read
from harness.report.messages.number_text import duration

__all__ = ["PAGES", "FigureError", "figures", "written"]

_ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
_FIGURE: Final = re.compile(r"<!-- (F-[A-Z0-9-]+-\d{3}): (.+?) -->(-?\d+(?:,\d{3})*(?:\.(\d+))?)")

_SHOWN: Final = "F-DISTILL-SMOKE-001"
_RUN: Final = f"evidence: evidence/PMAT-697/{_SHOWN}/"
"""In README.md, before the name of the run."""
_PRINTED: Final = ("loss", "learning_rate", "tokens_per_second")


class FigureError(ValueError):
    """A claim has no bundle, or its bundle does not have the measurement. The text names the figure."""


def figures(text: str) -> int:
    """How many figures of a page come from bundles."""
    return len(_FIGURE.findall(text))


def written(text: str) -> str:
    """Return a page with the figures of the newest bundles. Raises FigureError if one has no source."""
    text = _FIGURE.sub(lambda found: f"{found[0].removesuffix(found[3])}{_value(found)}", text)
    return _with_run(text) if _RUN in text else text


def _with_run(text: str) -> str:
    """The page with the times, the losses and the path of the run that it shows."""
    entry = _newest(_SHOWN, "reduced")
    bundle = Bundle(entry.path)
    measured = _documents(_SHOWN, "reduced")["self"]
    last = {name: column[-1] for name, column in bundle.metrics.columns.items()}
    (seconds,) = (mutant.seconds for mutant in bundle.record.mutants if mutant.id == "unlearnable-batch")
    losses = {name: measured[name] for name in ("final_loss", "initial_loss")}
    for pattern, now in {
        r"(?<=step 50/50  ).*?(?=  …)": "  ".join(f"{name} {last[name]:.6g}" for name in _PRINTED),
        r"(?<=subject  PASS in ).*": duration(entry.trial_seconds),
        r"(?<=unlearnable-batch  killed in ).*?(?= by)": duration(seconds),
        r"(?<=1 not run, ).*": duration(entry.seconds),
        r"(?<=loss-falls  )\S+": f"{losses['final_loss'] / losses['initial_loss']:.3g}",
        r"final_loss [\d.]+, initial_loss [\d.]+": ", ".join(f"{name} {loss:.6g}" for name, loss in losses.items()),
        rf"(?<={_RUN})\S+": entry.path.name,
    }.items():
        text = re.sub(pattern, now, text, count=1)
    return text


def _value(found: re.Match[str]) -> str:
    claim, expression, _, decimals = found.groups()
    documents = _documents(claim, "full")
    try:
        value = float(engine().compile(expression).execute(documents))
    except (ValueError, TypeError, RuntimeError, LookupError) as error:
        raise FigureError(f"{claim}: {expression}: {error}") from error
    return f"{value:,.{len(decimals or '')}f}"


@cache
def _documents(claim: str, profile: str) -> dict[str, Any]:
    """What an expression can read: all numbers are floats, because CEL does not mix integers and floats."""
    bundle = Bundle(_newest(claim, profile).path)
    observation, record = (json.loads(bundle.content(part), parse_int=float) for part in (OBSERVATION, RECORD))
    return {"self": observation["measurements"], "record": record}


def _newest(claim: str, profile: str) -> Entry:
    """The newest bundle of a claim in a profile, with the parameters and the subject of its contract."""
    usable = (entry for entry in _entries() if (entry.id, entry.profile) == (claim, profile) and _is_own(entry))
    newest = max(usable, key=lambda entry: entry.started, default=None)
    if newest is None:
        raise FigureError(f"{claim} has no bundle of the {profile} profile")
    return newest


def _is_own(entry: Entry) -> bool:
    return not (entry.overrides or entry.subject_parameters or entry.verdict is Verdict.NOT_MEASURED)


@cache
def _entries() -> tuple[Entry, ...]:
    return read(_ROOT / "evidence").entries


def main() -> None:
    """Write the figures into the pages."""
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        page.write_text(new := written(old), encoding="utf-8")
        for before, after in zip(_FIGURE.finditer(old), _FIGURE.finditer(new), strict=True):
            if before[3] != after[3]:
                print(f"{page.name}: {before[1]}: {before[3]} is now {after[3]}")


if __name__ == "__main__":
    main()

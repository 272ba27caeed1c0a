"""Says in Markdown how a run of claims ended; nothing if it ended normally and left bundles.

python3 ending.py STATE FOLDER BUNDLES

STATE has the files of run.sh, FOLDER its run.json and run.log. BUNDLES is the number of sealed bundles. This runs with
any Python 3, because the installation of the harness may have failed.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TIME_UP, REFUSED = 124, 2
ENDINGS = {0, 1, 3, 4}
"""The exit statuses of a run that ended normally."""


def main(state: Path, folder: Path, bundles: int) -> str:
    """Return the text."""
    status = number(state / "status")
    run = document(folder / "run.json")
    passed_over = [one for one in run.get("passed_over", []) if isinstance(one, dict)]
    due = run.get("declared", 0) - len(passed_over)
    falsified = [str(one.get("id")) for one in passed_over if one.get("verdict") == "FAIL"]
    if not (state / "pid").exists():
        return alert("CAUTION", "**Nothing ran**: the run ended before its first claim, while it was being prepared.")
    if status == REFUSED:
        return alert("CAUTION", "**Nothing ran**: the run was refused.") + block(last_lines(folder / "run.log"))
    if status not in ENDINGS:
        why = "its time limit was reached" if status == TIME_UP else "it was cancelled, or its runner stopped"
        of = f"{bundles} of {due} due claims have" if due else f"{bundles} claims have"
        return alert("WARNING", f"**Ended early**: {why}. {of} a result; the others have none.")
    stands = f"Earlier evidence refutes {', '.join(f'`{one}`' for one in falsified)}." if falsified else ""
    if bundles:
        return alert("CAUTION", stands) if stands else ""
    covered = sum(one.get("verdict") == "PASS" for one in passed_over)
    others = len(passed_over) - covered - len(falsified)
    counts = f"{covered} covered by evidence" + (f", {others} not for this machine" if others else "")
    text = f"**Nothing was due**: {len(passed_over)} claims, {counts}.\n\n"
    return text + (alert("CAUTION", stands) if stands else "")


def number(path: Path) -> int | None:
    """Return the number in a file; None without one."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def document(path: Path) -> dict:
    """Return the JSON object of a file; an empty one if the run was killed before it wrote it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def last_lines(path: Path) -> str:
    """Return the end of a log."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-1500:].strip()
    except OSError:
        return ""


def alert(kind: str, text: str) -> str:
    """Return a block that GitHub colours."""
    return f"> [!{kind}]\n> {text}\n\n"


def block(text: str) -> str:
    """Return a block of output. Its fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}\n\n" if text else ""


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))

"""The adversary of functions of tensors on a GPU: right functions, and cheats that only a GPU shows.

    python -m benchmarks.tensor_functions [--jobs 6] [--seeds 1] [NAME …]

Each function is tried in a process of its own. A right one should violate nothing, a cheat something. It takes about
four minutes on one H200 with 16 cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_WITHOUT_COMPILER = ("compiled",)


def tried(name: str, seed: int) -> dict[str, Any]:
    """What came of one function."""
    from benchmarks.tensor_cheats import CHEATS, HEALTHY
    from harness.authoring.tensor_function import RELATIONS, TensorFunction, try_relations

    if name in HEALTHY:
        (function, reference, example, more), names = HEALTHY[name], None
    else:
        base, made = CHEATS[name]
        _, reference, example, more = HEALTHY[base]
        function, names = made(), [relation for relation in RELATIONS if relation not in _WITHOUT_COMPILER]
    found = try_relations(TensorFunction.of(function, reference, example, **more), names, device="cuda:0", seed=seed)
    return {
        "violations": found.violations, "refused": found.refused, "tried": sum(found.tried.values()),
        "inapplicable": found.inapplicable,
    }  # fmt: skip


def _apart(name: str, seed: int) -> tuple[str, int, dict[str, Any], float]:
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.tensor_functions", "--one", name, "--seeds", str(seed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        found = {
            "violations": {},
            "ended": f"{type(error).__name__}: {done.stderr[-1500:] if 'done' in locals() else ''}",
        }
    return name, seed, found, time.monotonic() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--one")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(tried(given.one, given.seeds)))
        return
    from benchmarks.tensor_cheats import CHEATS, HEALTHY

    names = given.names or [*HEALTHY, *CHEATS]
    runs = [(name, seed) for name in names for seed in range(given.seeds if name in HEALTHY else 1)]
    wrong = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for name, seed, found, seconds in pool.map(lambda run: _apart(*run), runs):
            is_right = name in HEALTHY
            as_due = "ended" not in found and bool(found["violations"]) != is_right
            wrong += not as_due
            what = found.get("ended") or ", ".join(found["violations"]) or "holds"
            mark = "" if as_due else "<<< "
            print(f"{'right' if is_right else 'cheat'} {name:<30} {seed:>2} {mark}{what}  {seconds:.0f} s", flush=True)
            if is_right:
                for relation, texts in {**found["violations"], **found.get("refused", {})}.items():
                    print(*(f"        {relation}: {text}" for text in texts), sep="\n")
    print(f"{len(runs)} runs, {wrong} not as due")


if __name__ == "__main__":
    main()

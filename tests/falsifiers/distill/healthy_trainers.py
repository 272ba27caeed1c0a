"""Healthy Trainers under many seeds: none may be refuted. Prints the clauses that FAIL, and how many are not measured.

python -m tests.falsifiers.distill.healthy_trainers [--seeds 20] [--trainers kd,gkd,sft]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from harness.base.vocabulary import Outcome
from tests.falsifiers.distill.outside import EXPORT, MAX_STEPS, PERIOD, failed
from tests.falsifiers.distill.test_hugging_face import STEP, outcomes

CLAIMS = (STEP, MAX_STEPS, PERIOD, EXPORT)
TRAINERS: dict[str, tuple[str, dict[str, Any]]] = {
    "kd": ("trainers.kd_trainer:build", {}),
    "gkd": ("trainers.trl_gkd:build", {"alpha": 0, "temperature": 1}),
    "sft": ("trainers.trl_sft:build", {"alpha": 1}),
}


def main() -> int:
    """Run all claims for each seed and Trainer; the exit status is 1 if one is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trainers", default=",".join(TRAINERS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    refuted = 0
    for seed in range(asked.seeds):
        for kind in asked.trainers.split(","):
            function, parameters = TRAINERS[kind]
            for claim in CLAIMS:
                with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
                    found = outcomes(Path(folder), claim, function, seed=seed, **parameters)
                hidden = sum(outcome is Outcome.NOT_MEASURED for outcome in found.values())
                print(
                    f"seed {seed:2} {kind:<4} {claim:<28} FAIL {sorted(failed(found))}, {hidden} not measured",
                    flush=True,
                )
                refuted += bool(failed(found))
    print(f"{refuted} of {asked.seeds * len(asked.trainers.split(',')) * len(CLAIMS)} runs are refuted")
    return int(refuted > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Healthy Trainers under many seeds: none may be refuted. Prints the clauses that FAIL, and the number not measured.

python -m tests.falsifiers.distill.healthy_trainers [--first 0] [--seeds 20] [--trainers kd,gkd,sft]

For a TOML file, such as transformers-trainer, finished runs in its format are judged.
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
from tests.falsifiers.distill.outside import EXPORT, MAX_STEPS, PERIOD, SMOKE, failed
from tests.falsifiers.distill.test_hugging_face import STEP, outcomes
from tests.falsifiers.distill.test_ready_made_files import FORMATS, judged, made_in

CLAIMS = (STEP, MAX_STEPS, PERIOD, EXPORT)
OF_FILES = (SMOKE, EXPORT)
TRAINERS: dict[str, tuple[str, dict[str, Any]]] = {
    "kd": ("trainers.kd_trainer:build", {}),
    "gkd": ("trainers.trl_gkd:build", {"alpha": 0, "temperature": 1}),
    "sft": ("trainers.trl_sft:build", {"alpha": 1}),
}


def main() -> int:
    """Run all claims for each seed and Trainer; the exit status is 1 if one is refuted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trainers", default=",".join((*TRAINERS, *FORMATS)))
    options = parser.parse_args()
    torch.set_num_threads(1)
    refuted = runs = 0
    for seed in range(options.first, options.first + options.seeds):
        for kind in options.trainers.split(","):
            for claim in OF_FILES if kind in FORMATS else CLAIMS:
                with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
                    found = (
                        _of_file(Path(folder), claim, kind, seed)
                        if kind in FORMATS
                        else _live(Path(folder), claim, kind, seed)
                    )
                hidden = sum(outcome is Outcome.NOT_MEASURED for outcome in found.values())
                print(
                    f"seed {seed:2} {kind:<20} {claim:<28} FAIL {sorted(failed(found))}, {hidden} not measured",
                    flush=True,
                )
                runs += 1
                refuted += bool(failed(found))
    print(f"{refuted} of {runs} runs are refuted")
    return int(refuted > 0)


def _live(folder: Path, claim: str, kind: str, seed: int) -> dict[str, Outcome]:
    function, parameters = TRAINERS[kind]
    return outcomes(folder, claim, function, seed=seed, **parameters)


def _of_file(folder: Path, claim: str, kind: str, seed: int) -> dict[str, Outcome]:
    (folder / "made").mkdir()
    return judged(kind, made_in(folder / "made", seed), folder, claim)


if __name__ == "__main__":
    sys.exit(main())

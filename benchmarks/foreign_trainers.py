"""Which bugs of foreign trainers are caught: each trainer of trainers/foreign, healthy and with each bug.

    python -m benchmarks.foreign_trainers plain jax_loop accelerated lightning_loop transformers_loop lora

Each run is judged by F-DISTILL-STEP-001 and F-DISTILL-CKPT-EXPORT-001, by its log, its files and its dumps alone. A row
has the verdicts and the clauses that FAIL, and of a healthy run those without an outcome. `jax`, `lightning`
and `peft` are needed for three of the trainers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
CLAIMS = ("F-DISTILL-STEP-001", "F-DISTILL-CKPT-EXPORT-001")
STEPS = 8
SHAPE = {"steps": STEPS, "batch": 4, "sequence": 16, "checkpoint_every": 1}


def main() -> None:
    from trainers.foreign.common import BUGS, OF_DATA, OF_PLAIN, make

    with TemporaryDirectory() as folder:
        make(Path(folder) / "start")
        for engine in sys.argv[1:] or ["plain"]:
            for bug in ("", *BUGS):
                if bug in OF_DATA or (bug in OF_PLAIN and engine != "plain"):
                    continue  # the others take the optimizer as it is
                print(f"{engine:15} {bug or 'healthy':25} {judged(Path(folder), engine, bug)}", flush=True)


def judged(folder: Path, engine: str, bug: str) -> str:
    """The verdicts of a run, and the clauses that decide them."""
    out = folder / f"{engine}-{bug}"
    words = ["--student", str(folder / "start"), "--text", str(ROOT / "README.md"), "--out", str(out)]
    words += ["--steps", str(STEPS), "--batch", "4", "--sequence", "16", "--warmup", "2", "--every", "1"]
    words += ["--dump", str(out / "steps"), *(["--bug", bug] if bug else [])]
    name = "transformers_loop" if engine == "lora" else engine
    words += ["--rank", "4"] if engine == "lora" else []
    script = [sys.executable, str(ROOT / "trainers" / "foreign" / f"{name}.py"), *words]
    runs = [["--stop", str(STEPS // 2)], ["--resume"]]
    said = [subprocess.run([*script, *run], capture_output=True, text=True, check=True).stdout for run in runs]
    (out / "train.log").write_text("".join(said))
    file = "lora" if engine == "lora" else "foreign"
    given = {**SHAPE, "dir": out, "student": folder / "start", "alpha": 1, "warmup_steps": 2, "gradient_norm": 1e6}
    command = ["run", *CLAIMS, "--profile", "reduced", "--subject", f"recorded:trainers/foreign/{file}.toml"]
    command += ["--no-mutants", "--evidence", str(folder / "evidence"), "--json", "-"]
    command += [word for name, value in given.items() for word in ("-P", f"{name}={value}")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(["harness", *command], capture_output=True, text=True, cwd=ROOT, env=environment)
    if not done.stdout:
        return done.stderr.strip()
    rows = []
    for record in json.loads(done.stdout)["records"]:
        sought = "FAIL" if record["verdict"] == "FAIL" else "NOT_MEASURED"
        clauses = [clause["id"] for clause in record["clauses"] if clause["outcome"] == sought]
        rows.append(f"{record['id'].removeprefix('F-DISTILL-')} {record['verdict']} {', '.join(clauses)}")
    return "; ".join(rows) or done.stderr


if __name__ == "__main__":
    main()

"""F-PD-SOURCE-PROBE-001: the source's batch file starts its probe for the sizes that the pull request states.

The whole batch file runs. Only srun is replaced, by a program that records its arguments and its environment. The
probe's own argument parser, built from the calls in its text, reads the arguments after its name.
"""

import argparse
import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from harness import NotMeasured, Trial

_SECONDS = 60.0
_MODULE = "jax_single_pool.experiments.mem_probe"
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_NOTING = """#!/bin/sh
n=$(ls "$NOTES" | wc -l)
printf '%s\\n' "${XLA_PYTHON_CLIENT_MEM_FRACTION:-}" "$@" > "$NOTES/$n"
"""
_TYPES = {"int": int, "float": float, "str": str}


class ProbeFiles(Protocol):
    """The probe and its batch file; built as `Subject(setting)`."""

    def program(self) -> str:
        """Return the text of mem_probe.py."""
        ...

    def batch_file(self) -> str:
        """Return the text of the batch file."""
        ...


def falsify(trial: Trial[ProbeFiles]) -> None:
    """Run the batch file, and parse the arguments of each srun with the probe's parser."""
    with trial.subject_fault():
        program, batch_file = trial.subject.program(), trial.subject.batch_file()
        parser = _parser(program)
    devices = _number(batch_file, "--nodes=") * _number(batch_file, "--ntasks-per-node=")
    started, fractions, unread = [], [], list[str]()
    for fraction, words in _started(trial.workspace, batch_file):
        if _MODULE not in words:
            continue
        given, rest = parser.parse_known_args(words[words.index(_MODULE) + 1 :])
        started.append(vars(given))
        fractions.append(float(fraction or 1.0))
        unread += rest

    def of(name: str) -> list[Any]:
        return [options[name] for options in started if name in options]

    known = {action.dest for action in parser._actions}
    trial.measure(
        devices=devices,
        absent=[name for name in trial.parameters["arguments"] if name not in known],
        unread=unread,
        batches=[devices * size for size in of("per_gpu_batch")],
        layers=[last - first + 1 for first, last in zip(of("first_layer"), of("last_layer"), strict=False)],
        components=of("C"),
        chunk_sites=of("sites_per_chunk"),
        chunk_coefficients=of("recon_coeff"),
        without_rematerialization=of("no_remat"),
        usable_gib=[trial.parameters["cap_gib"] * fraction for fraction in fractions],
    )
    trial.resolve(device="cpu")


def _parser(program: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that the program adds to its own. Their values must be literals."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for call in ast.walk(ast.parse(program)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            names = [str(ast.literal_eval(arg)) for arg in call.args]
            options = {keyword.arg: _value(keyword.value) for keyword in call.keywords if keyword.arg}
            parser.add_argument(*names, **options)  # type: ignore[arg-type]
    return parser


def _value(node: ast.expr) -> object:
    return _TYPES[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def _number(text: str, option: str) -> int:
    numbers = [line.partition(option)[2] for line in text.splitlines() if line.startswith(f"#SBATCH {option}")]
    return int(numbers[-1]) if numbers else 1


def _started(workspace: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    """Run the file in its expected folder; return the memory fraction and the arguments of each srun."""
    bash = shutil.which("bash")
    if bash is None:
        raise NotMeasured("bash is not installed, and a batch file is a script for it")
    place, programs, notes = workspace / "root" / "a" / "b", workspace / "bin", workspace / "notes"
    for folder in (place, programs, notes, workspace / "root" / ".venv-cuda" / "bin"):
        folder.mkdir(parents=True)
    (workspace / "root" / ".venv-cuda" / "bin" / "activate").touch()
    (programs / "srun").write_text(_NOTING)
    (programs / "srun").chmod(0o755)
    (place / "probe.sbatch").write_text(text)
    variables = {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(workspace), "NOTES": str(notes),
        "SLURM_SUBMIT_DIR": str(place), "LANG": os.environ.get("LANG", "C"),
    }  # fmt: skip
    try:
        done = subprocess.run(
            [bash, str(place / "probe.sbatch")], cwd=place, env=variables, stdin=subprocess.DEVNULL, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"the batch file did not end within {_SECONDS:g} s") from error
    if done.returncode:
        raise NotMeasured(f"the batch file ended with {done.returncode}")
    for note in sorted(notes.iterdir(), key=lambda path: int(path.name)):
        fraction, *words = note.read_text(encoding="utf-8").splitlines()
        yield fraction, words

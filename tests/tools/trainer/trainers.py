"""The trainers' files that tests use, and the models for the small trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.tools.trainer.trainer_file import load

ROOT = Path(__file__).parents[3]
BIGRAMS_FILE = ROOT / "tests" / "tools" / "trainer" / "bigrams.toml"
APR = load(ROOT / "trainers" / "apr-distill.toml")
BIGRAMS = load(BIGRAMS_FILE)


def make_models(folder: Path) -> list[str]:
    """Write a teacher and a student for train_bigrams.py; the -P options that name them."""
    options = []
    for seed, name in enumerate(("teacher", "student")):
        place = folder / f"{name}.pt"
        command = [sys.executable, str(BIGRAMS_FILE.with_name("train_bigrams.py")), "make", str(place)]
        subprocess.run([*command, "--seed", str(seed)], check=True)
        options += ["-P", f"{name}={place}"]
    return options


@contextmanager
def changed_trainer(file: Path, old: str, new: str) -> Iterator[Path]:
    """A copy of a trainer's file with another text, in a folder of the project that holds no sources."""
    place = ROOT / "build" / f"changed-{os.getpid()}.toml"
    place.parent.mkdir(exist_ok=True)
    place.write_text(file.read_text().replace("{here}", str(file.parent)).replace(old, new, 1))
    try:
        yield place
    finally:
        place.unlink()

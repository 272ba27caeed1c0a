"""The time that jsonschema-rs saves: milliseconds to validate one document with it and with jsonschema, by schema.

The documents are this repository's contracts and the records of its evidence. jsonschema explains the errors of a
document. `harness.base.schemas` calls it only if jsonschema-rs finds the document invalid.

    python -m benchmarks.validating [--repeats 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs

from harness.base import schemas, strictjson
from harness.contract.project import Project


def milliseconds(validate: Callable[[Any], bool], documents: list[Any], repeats: int) -> float:
    """CPU time of one validation, the mean over all documents."""
    started = time.process_time()
    for _ in range(repeats):
        for document in documents:
            validate(document)
    return (time.process_time() - started) * 1000.0 / (repeats * len(documents))


def main() -> None:
    """Print a line for each schema."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    project = Project.find(Path(__file__).parent)
    places = {"contract": project.files(), "record": sorted(project.evidence.glob("*/*/*/record.json"))}
    print(f"{'schema':<10} {'documents':>9} {'jsonschema':>12} {'jsonschema-rs':>14}")
    for name, paths in places.items():
        documents = [strictjson.load(path) for path in paths]
        if not documents:
            print(f"{name:<10} {0:>9}")
            continue
        schema = strictjson.load(schemas.schema_folder() / f"{name}.schema.json")
        slow = milliseconds(jsonschema.Draft202012Validator(schema).is_valid, documents, repeats)
        fast = milliseconds(jsonschema_rs.Draft202012Validator(schema).is_valid, documents, repeats)
        print(f"{name:<10} {len(documents):>9} {slow:>9.2f} ms {fast:>11.3f} ms")


if __name__ == "__main__":
    main()

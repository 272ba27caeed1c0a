"""F-APR-V2-LAYOUT-001: every byte of a file is at the place that the table gives, and such files are read unchanged."""

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from falsifiers.apr.byte_table import COLUMN_MAJOR, build, departures, reseal
from falsifiers.apr.limits import misjudged_by_writer, written
from falsifiers.apr.recorded_files import look_at_layout
from falsifiers.apr.subject import AprFile, AprFormat, Rejected, TensorRecord
from falsifiers.apr.tensor_sets import FILES, KNOWN, file_of
from harness import Trial, for_external

_CASES = st.fixed_dictionaries({**FILES, "order": st.integers(0, 1000)})


@for_external(look_at_layout)
def falsify(trial: Trial[AprFormat]) -> None:
    """Check files that the subject writes against the table, and let it read files that are built from the table."""

    def check(case: Mapping[str, Any]) -> Mapping[str, Any]:
        file = file_of(case)
        data = written(trial, file)
        with trial.subject_fault():
            own = _read(trial.subject, data)
        differences = departures(data, file)
        foreign = build(file, _shuffled(len(file.tensors), int(case["order"])))
        dirty = bytearray(foreign)
        dirty[6:8] = (int.from_bytes(dirty[6:8], "little") | COLUMN_MAJOR).to_bytes(2, "little")
        with trial.subject_fault():
            foreign_content = _read(trial.subject, foreign)
            column_major = _read(trial.subject, reseal(bytes(dirty)))
        return {
            **{f"{section}_wrong": names for section, names in differences.items()},
            "own_misread": _misread(own, file),
            "foreign_misread": _misread(foreign_content, file),
            "column_major_accepted": column_major is not None,
        }

    trial.resolve(device="cpu")
    trial.measure(limits_misjudged=misjudged_by_writer(trial))
    known = [{**case, "order": number} for number, case in enumerate(KNOWN.values())]
    trial.measure(cases=trial.search(_CASES, check, examples=trial.parameters["cases"], first=known))


def _shuffled(count: int, seed: int) -> list[int]:
    """An order for the data of `count` tensors. Readers must go by offsets."""
    order = list(range(count))
    random.Random(seed).shuffle(order)  # noqa: S311
    return order


def _read(subject: AprFormat, data: bytes) -> AprFile | None:
    try:
        read = subject.read(data)
    except Rejected:
        return None
    content = AprFile(tuple(read.tensors), dict(read.metadata))  # what is neither raises here, as the subject's fault
    if not all(isinstance(tensor, TensorRecord) for tensor in content.tensors):
        raise TypeError("what read() returned as tensors are not TensorRecords")
    return content


def _misread(read: AprFile | None, file: AprFile) -> list[str]:
    """The differences between what a reader returned and the file; empty if there are none."""
    if read is None:
        return ["rejected"]
    wrong = [] if dict(read.metadata) == dict(file.metadata) else ["metadata"]
    by_name = {tensor.name: tensor for tensor in read.tensors}
    if len(by_name) < len(read.tensors) or by_name.keys() != {tensor.name for tensor in file.tensors}:
        return [*wrong, "names"]
    return [*wrong, *(f"tensor {tensor.name}" for tensor in file.tensors if by_name[tensor.name] != tensor)]

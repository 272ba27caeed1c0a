"""What the files of an engine that is not ours hold for which target; pure.

Such an engine has no index that says which kernels there should be. What can be said of it rests on two things that
somebody has to vouch for, and that the trainer's file does: which files its code is in, and which kernels a training
needs. Where one is missing, and where a file bears signs of code that is made at run time, that something was not found
refutes nothing, and that nothing was missed proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.inspect.device_code import DeviceCode, Form, Inspection

__all__ = ["Census", "Look", "census", "summary"]


@dataclass(frozen=True)
class Look:
    """Files that were looked into, and what is known of them.

    Attributes:
        inspections: of each file.
        vouched: whether somebody says that the engine's code is in these files and nowhere else.
        wanted: expressions, one a kernel that training needs; empty where nobody says which.
        by: the file in which both are said, for messages.
    """

    inspections: tuple[Inspection, ...]
    vouched: bool
    wanted: tuple[Any, ...]
    by: str


@dataclass(frozen=True)
class Census:
    """As `ArchiveCheck`, of kernels that were found instead of listed.

    Attributes:
        kernels: those that training needs.
        cells: kernels times targets.
        absent: nothing that the target could run, not even PTX.
        not_machine_code: only PTX, for the driver to compile.
        other_target: images that contradict themselves, or the fatbin image that lists them.
        unseen: why nothing beyond these can be told; empty where everything is.
    """

    kernels: int
    cells: int
    absent: tuple[str, ...]
    not_machine_code: tuple[str, ...]
    other_target: tuple[str, ...]
    unseen: tuple[str, ...]


def census(look: Look, targets: Sequence[int]) -> Census:
    """Count what is there for every kernel that training needs, and for every target."""
    codes = [code for inspection in look.inspections for code in inspection.codes]
    unseen = list(_unseen(look, codes))
    faults: dict[str, list[str]] = {"absent": [], "not_machine_code": []}
    kernels = 0
    if look.wanted:
        found = _by_kernel(codes)
        needed, lacking = _needed(look.wanted, found)
        kernels = len(needed) + len(lacking)
        for name in needed:
            _look_at(name, found[name], targets, faults)
        if look.vouched and not unseen:
            for pattern in lacking:
                _look_at(f"a kernel like {pattern}", [], targets, faults)
        elif lacking:
            unseen.append(f"no kernel like {lacking[0]} is in what was looked at")
    elif look.vouched and not unseen:
        _look_at("any kernel", codes, targets, faults)
    if not look.wanted:
        unseen.append(f"{look.by} does not say which kernels training needs (/device_code/kernels)")
    return Census(
        kernels,
        kernels * len(targets),
        tuple(faults["absent"]),
        tuple(faults["not_machine_code"]),
        tuple(_contradictions(look.inspections)),
        tuple(unseen),
    )


def summary(look: Look, targets: Iterable[int]) -> Iterator[str]:
    """For the trial's log: of each target the kernels that are there for it, and as what."""
    codes = [code for inspection in look.inspections for code in inspection.codes]
    for sm in targets:
        machine = {kernel for code in codes for kernel in code.kernels if _is_for(code, sm)}
        text = {kernel for code in codes for kernel in code.kernels if _compiles_to(code, sm)} - machine
        yield f"sm_{sm}: machine code of {len(machine)} kernels, only PTX of {len(text)}"


def _unseen(look: Look, codes: Sequence[DeviceCode]) -> Iterator[str]:
    if not look.inspections:
        yield f"{look.by} names no file with its device code (/device_code/files)"
    elif not codes:
        names = ", ".join(inspection.path.name for inspection in look.inspections[:3])
        yield f"{names}: no code for a GPU; an engine that makes its own when it runs has none, and so has /bin/true"
    for inspection in look.inspections:
        for sign in inspection.at_run_time:
            yield f"{inspection.path.name} holds {sign}"
        if inspection.notes:
            yield f"{inspection.path.name}: {inspection.notes[0]}"
        unread = [code for code in inspection.codes if code.reason]
        if unread:
            yield f"{inspection.path.name}, byte {unread[0].offset}: {unread[0].reason}"


def _by_kernel(codes: Iterable[DeviceCode]) -> dict[str, list[DeviceCode]]:
    found: dict[str, list[DeviceCode]] = {}
    for code in codes:
        for kernel in code.kernels:
            found.setdefault(kernel, []).append(code)
    return found


def _needed(wanted: Iterable[Any], found: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """The kernels that match one of the expressions, and the expressions that match none."""
    needed: dict[str, None] = {}
    lacking: list[str] = []
    for pattern in wanted:
        matching = [name for name in found if pattern.search(name)]
        needed |= dict.fromkeys(matching)
        if not matching:
            lacking.append(str(pattern.pattern))
    return list(needed), lacking


def _look_at(name: str, codes: Iterable[DeviceCode], targets: Iterable[int], faults: Mapping[str, list[str]]) -> None:
    codes = [code for code in codes if code.kernels]
    for sm in targets:
        if any(_is_for(code, sm) for code in codes):
            continue
        text = {code.target for code in codes if _compiles_to(code, sm)}
        if text:
            faults["not_machine_code"].append(f"{name} for sm_{sm}: only PTX for {', '.join(sorted(map(str, text)))}")
        else:
            there = sorted({code.sm for code in codes if code.form is Form.MACHINE_CODE and code.sm is not None})
            others = f"only machine code for {', '.join(f'sm_{one}' for one in there)}" if there else "no code"
            faults["absent"].append(f"{name} for sm_{sm}: {others}")


def _is_for(code: DeviceCode, sm: int) -> bool:
    return code.form is Form.MACHINE_CODE and code.sm == sm


def _compiles_to(code: DeviceCode, sm: int) -> bool:
    """Whether the driver could compile this PTX for a target: for a later one, unless it is bound to one (sm_90a)."""
    if code.form is not Form.PTX or code.sm is None:
        return False
    return code.sm == sm or (code.sm < sm and not str(code.target).endswith(("a", "f")))


def _contradictions(inspections: Iterable[Inspection]) -> Iterator[str]:
    for inspection in inspections:
        for code in inspection.codes:
            if code.form is not Form.MACHINE_CODE:
                continue
            target = None if code.target is None else int(code.target.removeprefix("sm_").rstrip("af"))
            named = {code.listed_sm, code.sm, code.noted_sm, target} - {None}
            if len(named) > 1:
                told = ", ".join(f"sm_{sm}" for sm in sorted(one for one in named if one is not None))
                yield f"{inspection.path.name}, byte {code.offset}: is for {told}, depending on what is asked"

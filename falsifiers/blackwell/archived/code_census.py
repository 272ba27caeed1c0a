"""Device code in the files of an external engine, by target. Pure functions.

Such an engine has no index of its kernels. The trainer's file has to say which files hold its code, and which kernels
training needs. If it does not say so, or if a file shows signs of code made at run time, then kernels that were not
found do not refute the claim, and an empty list of faults does not support it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.tools.inspect.device_code import DeviceCode, Form, Inspection


@dataclass(frozen=True)
class Look:
    """The files that were inspected, and what the trainer's file says about them.

    Attributes:
        inspections: one for each file.
        vouched: whether the trainer's file says that these files hold all of the engine's code.
        wanted: regular expressions, one for each kernel that training needs; empty if the trainer's file names none.
        by: the name of the trainer's file, for messages.
    """

    inspections: tuple[Inspection, ...]
    vouched: bool
    wanted: tuple[Any, ...]
    by: str


@dataclass(frozen=True)
class Census:
    """The same faults as `ArchiveCheck`, for kernels that were found instead of listed.

    Attributes:
        kernels: kernels that training needs.
        cells: kernels times targets.
        absent: no code that the target can run, not even PTX.
        not_machine_code: only PTX, which the driver would compile.
        other_target: images that contradict themselves, or the fatbin entry that lists them.
        unseen: reasons why nothing more can be concluded; empty if there are none.
    """

    kernels: int
    cells: int
    absent: tuple[str, ...]
    not_machine_code: tuple[str, ...]
    other_target: tuple[str, ...]
    unseen: tuple[str, ...]


def census(look: Look, targets: Sequence[int]) -> Census:
    """Count the code for every kernel that training needs and every target."""
    codes = [code for inspection in look.inspections for code in inspection.codes]
    unseen = list(_unseen(look, codes))
    faults: dict[str, list[str]] = {"absent": [], "not_machine_code": []}
    kernels = 0
    if look.wanted:
        by_kernel = _by_kernel(codes)
        needed, lacking = _needed(look.wanted, by_kernel)
        kernels = len(needed) + len(lacking)
        for name in needed:
            _look_at(name, by_kernel[name], targets, faults)
        if look.vouched and not unseen:
            for pattern in lacking:
                _look_at(f"a kernel like {pattern}", [], targets, faults)
        elif lacking:
            unseen.append(f"no kernel like {lacking[0]} is in the inspected files")
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
    """One line per target for the trial's log: the number of kernels as machine code and as PTX only."""
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
        yield f"{names}: no code for a GPU; the engine may make it at run time, or these are not its files"
    for inspection in look.inspections:
        for sign in inspection.at_run_time:
            yield f"{inspection.path.name} holds {sign}"
        if inspection.notes:
            yield f"{inspection.path.name}: {inspection.notes[0]}"
        unread = [code for code in inspection.codes if code.reason]
        if unread:
            yield f"{inspection.path.name}, byte {unread[0].offset}: {unread[0].reason}"


def _by_kernel(codes: Iterable[DeviceCode]) -> dict[str, list[DeviceCode]]:
    by_kernel: dict[str, list[DeviceCode]] = {}
    for code in codes:
        for kernel in code.kernels:
            by_kernel.setdefault(kernel, []).append(code)
    return by_kernel


def _needed(patterns: Iterable[Any], kernels: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """The kernels that match an expression, and the expressions that match no kernel."""
    needed: dict[str, None] = {}
    lacking: list[str] = []
    for pattern in patterns:
        matching = [name for name in kernels if pattern.search(name)]
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
            sms = sorted({code.sm for code in codes if code.form is Form.MACHINE_CODE and code.sm is not None})
            others = f"only machine code for {', '.join(f'sm_{other}' for other in sms)}" if sms else "no code"
            faults["absent"].append(f"{name} for sm_{sm}: {others}")


def _is_for(code: DeviceCode, sm: int) -> bool:
    return code.form is Form.MACHINE_CODE and code.sm == sm


def _compiles_to(code: DeviceCode, sm: int) -> bool:
    """Whether the driver can compile this PTX for a target: the same or a later one, unless bound to one (sm_90a)."""
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
                targets = ", ".join(f"sm_{sm}" for sm in sorted(target for target in named if target is not None))
                yield f"{inspection.path.name}, byte {code.offset}: names several targets: {targets}"

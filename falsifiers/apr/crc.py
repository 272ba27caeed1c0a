"""F-APR-V2-CRC-001: a reader rejects a file that is damaged anywhere, or that the format does not allow."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from falsifiers.apr.byte_table import Layout, Malformed, build, reseal
from falsifiers.apr.limits import misjudged_by_reader, opens, written
from falsifiers.apr.recorded_files import look_at_checksums
from falsifiers.apr.subject import AprFormat
from falsifiers.apr.tensor_sets import FILES, KNOWN, file_of
from harness import Trial, for_external

REGIONS = ("header", "metadata", "index", "payload", "padding", "footer", "truncated", "appended", "unbounded")
"""The kinds of damage. The first six are made in place; an `unbounded` file names sizes beyond its end."""

_TOLD = 3
"""Number of damages per region that are reported for one file."""
_CASES = st.fixed_dictionaries(
    {
        **FILES,
        # The place within a region, in units of 2**-32 of its size, so that one draw serves regions of any size.
        "at": st.integers(0, 2**32 - 1),
        "bit": st.integers(0, 7),
        "noise": st.binary(min_size=1, max_size=40).map(bytes.hex),
    }
)


@for_external(look_at_checksums)
def falsify(trial: Trial[AprFormat]) -> None:
    """Damage files, from the subject and from the table, in every region, and collect those that the subject opens."""
    tried = dict.fromkeys(REGIONS, 0)

    def check(case: Mapping[str, Any]) -> Mapping[str, Any]:
        file = file_of(case)
        own = written(trial, file)
        accepted: dict[str, list[str]] = {region: [] for region in REGIONS}
        rejected = []
        for whose, data in (("own", own), ("ours", build(file))):
            if not opens(trial, data):
                rejected.append(whose)
            for region, how, changed in damaged(data, case):
                if changed == data:
                    continue
                tried[region] += 1
                if opens(trial, changed):
                    accepted[region].append(f"{whose}: {how}")
        return {"healthy_rejected": rejected, **{f"{name}_accepted": _some(hows) for name, hows in accepted.items()}}

    trial.resolve(device="cpu")
    trial.measure(limits_misjudged=misjudged_by_reader(trial))
    known = [{**case, "at": 2**31, "bit": 3, "noise": "00"} for case in KNOWN.values()]
    cases = trial.search(_CASES, check, examples=trial.parameters["cases"], first=known)
    trial.measure(cases=cases, damages=tried)


def _some(hows: list[str]) -> list[str]:
    """The first damages, and the number of the others: a reader without checks opens hundreds of damaged files."""
    return hows if len(hows) <= _TOLD else [*hows[:_TOLD], f"and {len(hows) - _TOLD} more"]


def damaged(data: bytes, case: Mapping[str, Any]) -> Iterator[tuple[str, str, bytes]]:
    """Yields region, description and the damaged file. Some may equal the original file."""
    try:
        layout = Layout.of(data)
    except Malformed:
        return
    at, bit, noise = int(case["at"]), int(case["bit"]), bytes.fromhex(case["noise"])
    for region, start, end in _ranges(layout, at):
        if start < end:
            place = start + at * (end - start) // 2**32
            flipped = _flipped(data, place, bit)
            yield region, f"bit {bit} of byte {place} flipped", flipped
            yield region, f"noise at byte {place}", _written(data, place, noise[: end - place])
            yield region, f"bytes {start} to {end} zeroed", _written(data, start, bytes(end - start))
            if region != "footer":
                yield region, f"byte {place} flipped, footer zeroed", flipped[:-4] + bytes(4)
    yield from _in_checksums(data, at, bit)
    yield from _cut(data, layout, at)
    yield from _appended(data, noise)
    yield from _unbounded(data, layout)


def _ranges(layout: Layout, at: int) -> Iterator[tuple[str, int, int]]:
    """The byte range of each region. Of several tensors or gaps, `at` selects one."""
    yield "header", 0, 64
    yield "metadata", *layout.metadata
    yield "index", *layout.index
    held = [entry for entry in layout.entries if entry.size]
    gaps = [gap for gap in layout.padding() if gap[0] < gap[1]]
    if held:
        chosen = held[at % len(held)]
        yield "payload", chosen.offset, chosen.offset + chosen.size
        last = max(held, key=lambda entry: entry.offset + entry.size)
        yield "payload", last.offset + last.size - 1, last.offset + last.size
    if gaps:
        yield "padding", *gaps[at % len(gaps)]
    yield "footer", layout.end, layout.end + 4


def _in_checksums(data: bytes, at: int, bit: int) -> Iterator[tuple[str, str, bytes]]:
    """Damage that only one of the two checksums, or a part of one, can detect."""
    for byte in range(4):
        yield "footer", f"bit {bit} of the footer's byte {byte}", _flipped(data, len(data) - 4 + byte, bit)
    # As a tool that patches the header and writes a new footer, but not the header's own checksum.
    place = at % 64
    patched = _flipped(data, place, bit)[:-4]
    yield "header", f"byte {place} flipped, footer right", patched + zlib.crc32(patched).to_bytes(4, "little")
    unset = _written(_flipped(data, 50, bit), 40, bytes(4))[:-4]
    yield "header", "reserved byte set, checksum zero, footer right", unset + zlib.crc32(unset).to_bytes(4, "little")
    # As a tool that knows only the header's checksum. No flag makes the footer optional.
    flags = int.from_bytes(data[6:8], "little")
    for flag in range(16):
        resealed = reseal(_written(data, 6, (flags ^ 1 << flag).to_bytes(2, "little")))
        yield "header", f"flag {flag} changed, header's checksum right", resealed[:-4] + data[-4:]


def _cut(data: bytes, layout: Layout, at: int) -> Iterator[tuple[str, str, bytes]]:
    """Beginnings of a file, as an interrupted download leaves them."""
    ends = (
        1024,
        at * len(data) // 2**32,
        len(data) - 1,
        len(data) - 4,
        len(data) - 64,
        layout.data,
        layout.index[0],
        64,
    )
    for end in (*ends, 63, 4, 0):
        if 0 <= end < len(data):
            yield "truncated", f"only the first {end} bytes", data[:end]


def _appended(data: bytes, noise: bytes) -> Iterator[tuple[str, str, bytes]]:
    """The file with bytes appended."""
    yield "appended", "noise", data + noise
    yield "appended", "64 zeros", data + bytes(64)
    yield "appended", "the footer again", data + data[-4:]
    yield "appended", "the file again", data + data
    # The CRC32 of any bytes followed by their own CRC32 is a constant, so the new footer is correct.
    yield "appended", "the checksum of the whole", data + zlib.crc32(data).to_bytes(4, "little")


def _unbounded(data: bytes, layout: Layout) -> Iterator[tuple[str, str, bytes]]:
    """Files with two correct checksums and numbers that point past the end. No checksum detects these."""

    def said(at: int, width: int, number: int) -> bytes:
        return reseal(_written(data, at, (number % 2 ** (8 * width)).to_bytes(width, "little")))

    fields = {"metadata": 12, "index": 24, "data": 32}
    if layout.entries:
        # An entry ends with offset and size. The last tensor shows an end past the file. The first one shows an end
        # that an overflow brings back into the file, because the last tensor still ends with the data.
        first = layout.entries[0]
        fields["the first tensor"] = layout.index[0] + 4 + len(first.name) + 8 * len(first.shape)
        fields["the last tensor"] = layout.index[1] - 16
    sizes = {f"{which}'s size": at + 8 for which, at in fields.items() if which.endswith("tensor")}
    for what, at in (fields | sizes).items():
        true = int.from_bytes(data[at : at + 8], "little")
        # The third number equals the true one in its lower 32 bits.
        for number in (2**64 - 64, 2**63, true + 2**32, len(data) + 64):
            yield "unbounded", f"{what}: {number}", said(at, 8, number)
    yield "unbounded", "65,536 tensors more", said(8, 4, int.from_bytes(data[8:12], "little") + 2**16)
    yield "unbounded", "2**32 - 1 tensors", said(8, 4, 2**32 - 1)
    yield "unbounded", "2**32 - 1 bytes of metadata", said(20, 4, 2**32 - 1)


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    return _written(data, place, bytes([data[place] ^ 1 << bit]))


def _written(data: bytes, place: int, piece: bytes) -> bytes:
    return data[:place] + piece + data[place + len(piece) :]

"""The recorder's library, loaded by a driver without a GPU: what images are, whole lines, bounds, threads, refusals."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import pytest

from harness import NotMeasured
from harness.tools.recorder.libraries import DEFECTS, compiled, planted
from harness.tools.recorder.records import Recording, control, read
from tests.tools.recorder.fakes import Fakes

TEXT = b"/* of a compiler\n */ // and a line\n.version 8.0\n.target sm_90a, debug\n.address_size 64\n"


def cubin(sm: int, abi: int) -> bytes:
    """An ELF header for CUDA with no sections; ABI 8 is CUDA 13's, where the target's bits are others."""
    flags = sm << 8 if abi >= 8 else sm
    ident = b"\x7fELF\x02\x01\x01\x33" + bytes([abi]) + bytes(7)
    return ident + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 64, 64, flags, 64, 56, 0, 64, 0, 0) + bytes(64)


def fatbin(*entries: tuple[int, int, bytes]) -> bytes:
    """A fatbin of (kind, target, content): kind 1 is PTX, 2 machine code."""
    body = b""
    for kind, sm, content in entries:
        padded = content + bytes(-len(content) % 8)
        body += struct.pack("<HHIQIIHHIQQQQ", kind, 0x101, 64, len(padded), 0, 0, 0, 8, sm, 0, 0x11, 0, 0) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


IMAGES = {
    "ptx": (TEXT, "ptx", True, [], [90]),
    "cubin-12": (cubin(90, 7), "machine_code", False, [90], []),
    "cubin-13": (cubin(90, 8), "machine_code", False, [90], []),
    "both": (fatbin((2, 75, cubin(75, 8)), (2, 90, cubin(90, 8)), (1, 90, TEXT)), "fatbin", False, [75, 90], [90]),
    "older-minor": (fatbin((2, 80, cubin(80, 8)), (1, 80, TEXT)), "fatbin", True, [80], [80]),
    "ptx-only": (fatbin((1, 75, TEXT)), "fatbin", True, [], [75]),
    "cubin-only": (fatbin((2, 80, cubin(80, 8))), "fatbin", False, [80], []),
    "bitcode": (b"\xed\x43\x4e\x7f" + bytes(60), "intermediate", True, [], []),
    "text": (b"version of something that is no PTX at all, and long enough", "unknown", False, [], []),
    "cut-off": (fatbin((1, 75, TEXT))[:16] + bytes(200), "fatbin", False, [], []),
}
"""By name: an image, its form, whether a device of compute capability 9.0 needs a compilation, and its targets."""


def test_what_an_image_is_follows_from_its_content(fakes: Fakes) -> None:
    """Of machine code and PTX, from CUDA 12 and 13, alone and in fatbins; the digest is that of the bytes."""
    arguments = []
    for name, (content, *_) in IMAGES.items():
        (fakes.folder / name).write_bytes(content)
        arguments += ["--library", str(fakes.folder / name)]
    seen = fakes.run("images", arguments).seen
    found = [event for event in seen.events if event["event"] == "module"]
    assert [
        (load["form"], load["needs_jit"], load["machine_code"], load["ptx"]) for load in found
    ] == [tuple(image[1:]) for image in IMAGES.values()]  # fmt: skip
    assert {load["device"] for load in found} == {90}
    digests = {name: load.get("sha256") for name, load in zip(IMAGES, found, strict=True)}
    for name in ("ptx", "both", "ptx-only"):
        assert digests[name] == hashlib.sha256(IMAGES[name][0]).hexdigest()


def test_ptx_for_the_linker_is_seen_where_the_caller_says_what_it_is(fakes: Fakes) -> None:
    path = fakes.folder / "linked"
    path.write_bytes(TEXT)
    seen = fakes.run("linked-run", ["--linked", str(path)], CUDA_DISABLE_PTX_JIT="1").seen
    assert [text.partition(":")[0] for text in seen.ptx] == ["cuLinkAddData_v2"]
    assert seen.refused_loads == ("cuLinkAddData_v2: 223",)


def test_every_thread_counts_and_the_lines_are_bounded(fakes: Fakes) -> None:
    """40,000 launches of 3,000 kernels by eight threads: every launch in the totals, and each line whole."""
    ran = fakes.run(
        "threads", ["--threads", "8", "--launches", "5000", "--kernels", "3000"],
        HARNESS_RECORDER_LINES="50", HARNESS_RECORDER_LAUNCHES="100000",
    )  # fmt: skip
    assert (ran.seen.launches, ran.seen.sampled) == (40_000, False)
    assert len(ran.seen.kernels) == 50
    (path,) = ran.folder.iterdir()
    lines = path.read_text().splitlines()
    assert len(lines) < 200
    assert {json.loads(line)["event"] for line in lines} >= {"start", "ready", "kernel", "launches", "totals"}
    unnamed = [event["unnamed_launches"] for event in ran.seen.events if event["event"] == "totals"][-1]
    assert unnamed < 40_000 / 10


def test_many_launches_are_counted_in_samples(fakes: Fakes) -> None:
    """All of the first hundred, and not the next one, though each was made."""
    ran = fakes.run("samples", ["--launches", "5000"], HARNESS_RECORDER_LAUNCHES="100")
    assert ran.output.startswith("step 1/1 loss 5000.0")
    assert 100 <= ran.seen.launches < 5000
    assert ran.seen.sampled


def test_a_process_that_is_killed_leaves_whole_lines(fakes: Fakes) -> None:
    """Its PTX and at least half of its launches, though it never came to its end."""
    path = fakes.folder / "killed"
    path.write_bytes(TEXT)
    ran = fakes.run("kill", ["--image", str(path), "--launches", "100", "--end", "kill"])
    assert (ran.status, ran.seen.unended) == (-9, 1)
    assert ran.seen.launches == 64
    assert len(ran.seen.ptx) == 1
    (written,) = ran.folder.iterdir()
    assert written.read_bytes().endswith(b"}\n")


def test_what_the_driver_compiles_is_told(fakes: Fakes) -> None:
    path = fakes.folder / "compiled-text"
    path.write_bytes(TEXT)
    seen = fakes.run("compiled", ["--image", str(path)], CUDA_CACHE_PATH=str(fakes.folder)).seen
    assert seen.compilations == ("compile of ptx",)


@pytest.mark.parametrize(
    ("ready", "totals", "said"),
    [
        ({"jit": False}, {}, "CUPTI tells of no compilations"),
        ({"callbacks": 0}, {}, "CUPTI enabled no callback"),
        ({}, {"ptx": 2}, "2 events of the kind ptx"),
        ({}, {"jit": 1}, "1 events of the kind jit"),
        ({}, {"late": 3}, "3 events of the kind late"),
    ],
)
def test_what_the_recorder_could_not_see_or_write_is_said(
    ready: dict[str, object], totals: dict[str, object], said: str
) -> None:
    """A CUPTI without JIT records, and a disk that was full for a time, do not look like an engine without PTX."""
    counted = {
        "event": "totals",
        "final": True,
        "launches": 1,
        "ptx": 0,
        "jit": 0,
        "refused": 0,
        "calls": {},
        "sampled": False,
        "late": 0,
    }
    events = ({"event": "ready", "jit": True, "callbacks": 30, **ready}, {**counted, **totals})
    seen = Recording(tuple({**event, "process": "1"} for event in events))
    assert [text.partition(" were")[0] for text in seen.unseen] == [said]
    assert seen.unended == 0


def test_a_control_characters_name_stays_one_line(fakes: Fakes, tmp_path: Path) -> None:
    """Quotes, backslashes, line ends and bytes beyond ASCII are escaped."""
    odd = tmp_path / 'a"b\\c\n\u00e9'
    odd.write_bytes(TEXT)
    ran = fakes.run("odd", ["--image", str(odd)])
    (start,) = [event for event in ran.seen.events if event["event"] == "start"]
    assert 'a"b\\c\n\u00c3\u00a9' in start["program"]


@pytest.mark.parametrize(("variables", "why"), [({"FAKE_SUBSCRIBED": "1"}, "cuptiSubscribe answered 39")])
def test_where_cupti_cannot_be_used_the_file_says_so(fakes: Fakes, variables: dict[str, str], why: str) -> None:
    seen = fakes.run("refused", **variables).seen
    assert seen.processes == 0
    assert why in seen.unseen[0]


def test_where_there_is_no_cupti_the_file_says_so(fakes: Fakes, tmp_path: Path) -> None:
    """A library without CUPTI's functions is none."""
    empty = tmp_path / "empty.c"
    empty.write_text("")
    other = compiled(empty, tmp_path / "libcupti.so.13")
    seen = fakes.run("absent", HARNESS_RECORDER_CUPTI=str(other)).seen
    assert seen.processes == 0
    assert seen.unseen[0].startswith("no CUPTI")


def test_the_control_names_a_driver_that_is_not_there(fakes: Fakes, tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match=re.escape("there is no CUDA driver with a device here")):
        control(fakes.recorder, tmp_path / "control", {"LD_LIBRARY_PATH": str(tmp_path)})


def test_the_control_shows_that_ptx_is_seen(fakes: Fakes, tmp_path: Path) -> None:
    seen = control(fakes.recorder, tmp_path / "control", {**fakes.variables, "CUDA_DISABLE_PTX_JIT": "1"})
    assert (seen.result, seen.version, seen.driver.name) == (223, 13000, "libcuda.so.1")


def test_a_process_without_the_driver_leaves_nothing(fakes: Fakes) -> None:
    assert fakes.run("nothing", ["--end", "nothing"]).seen.events == ()


HEALTHY = "step 1/1 loss 3.0 copied " + "a" * 64
SHOWS = {
    "ptx-module": (HEALTHY, ["cuModuleLoadData"]),
    "ptx-fatbin": (HEALTHY, ["cuModuleLoadData"]),
    "ptx-linked": (HEALTHY, ["cuLinkAddData_v2"]),
    "ptx-library": (HEALTHY, ["cuLibraryLoadData"]),
    "ptx-compiled": (HEALTHY, ["cuModuleLoadData"]),
    "out-of-memory": ("cuMemAlloc answered 2", []),
    "copy-corrupted": (HEALTHY[:57] + "!" + HEALTHY[58:], []),
    "launch-left-out": (HEALTHY.replace("3.0", "2.0"), []),
    "launch-twice": (HEALTHY.replace("3.0", "4.0"), []),
    "launches-nothing": (HEALTHY.replace("3.0", "0.0"), []),
    "library-left-out": (HEALTHY, []),
    "library-relayed": (HEALTHY, []),
    "allocation-swapped": (HEALTHY, []),
}
"""By defect: what the program prints, and by which call PTX reaches the driver."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_at_the_boundary_does_what_it_says(fakes: Fakes, defect: str) -> None:
    """And nothing else: the program is the same, and the rest of its calls reach the driver."""
    ran = fakes.run(f"planted-{defect}", defect=defect, CUDA_DISABLE_PTX_JIT="1")
    output, loads = SHOWS[defect]
    assert ran.output.strip() == output
    assert [text.partition(":")[0] for text in ran.seen.ptx] == loads
    assert bool(ran.seen.compilations) == (defect == "ptx-compiled")
    assert bool(ran.seen.out_of_memory) == (defect == "out-of-memory")


ALLOCATIONS = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync",
               "cuMemCreate")  # fmt: skip


@pytest.mark.parametrize("call", ALLOCATIONS)
def test_no_way_to_the_devices_memory_is_left_out(fakes: Fakes, call: str) -> None:
    """Also of a program that opens the driver by its other name first, as Warp does: both names are the boundary."""
    arguments = ["--allocation", call, "--opens", "libcuda.so"]
    assert fakes.run(f"healthy-{call}", arguments).output.strip() == HEALTHY
    ran = fakes.run(f"full-{call}", arguments, defect="out-of-memory")
    assert ran.output.strip() == f"{call} answered 2"
    assert [text.partition(":")[0].removesuffix("_v2") for text in ran.seen.out_of_memory] == [call]


@pytest.mark.parametrize("call", ["cuLaunchCooperativeKernel", "cuGraphLaunch"])
def test_no_way_to_launch_is_left_out(fakes: Fakes, call: str) -> None:
    ran = fakes.run(f"idle-{call}", ["--launch", call], defect="launches-nothing")
    assert (ran.output.strip(), ran.seen.launches) == (HEALTHY.replace("3.0", "0.0"), 0)
    assert fakes.run(f"busy-{call}", ["--launch", call]).seen.launches == 3


def test_a_defect_shows_at_the_call_that_is_asked_for(fakes: Fakes) -> None:
    ran = fakes.run("later", ["--launches", "3"], defect="launch-twice:4")
    assert ran.output.strip() == HEALTHY


def test_an_unknown_defect_is_refused(fakes: Fakes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ptx-module"):
        planted("ptx-modul", fakes.driver, tmp_path, "")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "1-1.jsonl").write_bytes(b'{"event":"totals"}\n{"event": }\n{"cut')
    with pytest.raises(NotMeasured, match=re.escape("1-1.jsonl: a line of the recorder is damaged")):
        read(tmp_path)

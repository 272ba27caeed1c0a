"""External engines under F-BLACKWELL-ARCHIVE-001: a healthy engine is not refuted, and each defect fails its clause."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from falsifiers.blackwell.archived import external
from falsifiers.blackwell.reference.kernels.catalogue import add
from harness import NotMeasured
from harness.base.vocabulary import Outcome
from tests.falsifiers.blackwell.archived.engines import ENGINE, KERNELS, PROJECT, TARGETS, AnyGpu, engine, library
from tests.falsifiers.blackwell.archived.test_code_census import cells_of

FROM_OUTSIDE_NEVER = {
    "other_kernel", "stale", "altered", "rebuilt", "not_reproduced", "nvrtc_calls", "refused_loads", "unlaunched",
    "torch_products", "blocks-run-own-kernels", "children", "images-rebuilt", "resolved.dtype", "residency",
    "resolved.steps", "unread", "other_weights", "gradient_errors", "loss_errors", "raised_key_errors",
}  # fmt: skip


def test_a_healthy_engine_passes_wherever_it_can_be_seen_and_nowhere_else(
    tmp_path: Path, code: Path, gpu: None
) -> None:
    seen = engine(tmp_path, code)
    assert seen.clauses(Outcome.FAIL) == set()
    unseen = {re.split(r"[.\[]", name)[0] if "resolved" not in name else name
              for name in seen.clauses(Outcome.NOT_MEASURED)}  # fmt: skip
    assert unseen - {"subject"} == FROM_OUTSIDE_NEVER
    assert seen.resolved == {"device": "cuda", "contradiction": ""}
    assert (seen.measured["kernels"], seen.measured["cells"], seen.measured["memory_bytes"]) == (3, 6, 4 * 2**30)
    assert (seen.measured["cache_files"], seen.measured["reported_compilations"]) == ([], 0)
    assert seen.reason == ""


DEFECTS = {
    "upload": {"failed_uploads.maxItems", "subject.completes"},
    "upload-swallowed": {"failed_uploads.maxItems", "subject.completes"},
    "refused": {"refused_loads.const", "subject.completes"},
    "refused-swallowed": {"refused_loads.const"},
    "compiles-all": {"reported_compilations.const"},
    "compiles-late": {"reported_compilations.const"},
    "leaves-in-cache": {"cache_files.maxItems"},
    "rises": {"loss-falls"},
    "short": {"resolved.steps"},
    "falls-back": {"resolved.device"},
    "crashes": {"subject.completes"},
}


@pytest.mark.parametrize("fail", DEFECTS)
def test_every_defect_falls_on_the_clause_that_names_it(fail: str, tmp_path: Path, code: Path, gpu: None) -> None:
    assert engine(tmp_path, code, fail).clauses(Outcome.FAIL) == DEFECTS[fail]


def test_what_went_wrong_at_the_upload_is_told_in_its_own_words(tmp_path: Path, code: Path, gpu: None) -> None:
    seen = engine(tmp_path, code, "upload")
    assert "Block 0 upload failed" in seen.measured["failed_uploads"][0]
    assert "CUDA_ERROR_OUT_OF_MEMORY" in seen.reason
    assert "\x1b" not in seen.reason


def test_kernels_loaded_for_another_gpu_than_the_one_at_hand(tmp_path: Path, code: Path, gpu: None) -> None:
    seen = engine(tmp_path, code, target="sm_90")
    assert seen.clauses(Outcome.FAIL) == {"other_target.maxItems"}
    (line,) = seen.measured["other_target"]
    assert re.findall(r"sm_\d+", line) == ["sm_90", "sm_121"]


def test_more_memory_than_the_cap(tmp_path: Path, code: Path, gpu: None) -> None:
    assert engine(tmp_path, code, memory_cap_gib=3).clauses(Outcome.FAIL) == {"within-memory-cap"}


def test_an_engine_that_prints_no_counter_is_not_believed_to_compile_nothing(
    tmp_path: Path, code: Path, gpu: None
) -> None:
    seen = engine(tmp_path, code, "counts-nothing")
    assert "reported_compilations" not in seen.measured
    assert seen.clauses(Outcome.FAIL) == set()


def test_an_empty_cache_proves_nothing_where_the_driver_may_compile(tmp_path: Path, code: Path, gpu: None) -> None:
    assert "cache_files" not in engine(tmp_path, code, disable_ptx_jit="0").measured


def test_an_empty_cache_proves_nothing_of_an_engine_that_never_came_to_the_gpu(
    tmp_path: Path, code: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnyGpu, "was_used", False)
    assert "cache_files" not in engine(tmp_path, code).measured


def test_a_driver_that_compiles_all_the_same_ends_the_trial_unmeasured(
    tmp_path: Path, code: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> None:
        raise NotMeasured("the driver compiled our PTX")

    monkeypatch.setattr(external, "see_that_ptx_is_refused", refuses)
    seen = engine(tmp_path, code)
    assert ("cache_files" in seen.measured, seen.reason) == (False, "the driver compiled our PTX")


def test_memory_that_others_hold_is_not_the_engines_fault(
    tmp_path: Path, code: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnyGpu, "free_bytes", 2 * 2**30)
    seen = engine(tmp_path, code, "upload")
    assert seen.clauses(Outcome.FAIL) == set()
    assert re.findall(r"[\d.]+ GiB", seen.reason) == ["2.0 GiB", "24 GiB"]


def test_on_a_cpu_nothing_is_claimed_of_a_gpu(tmp_path: Path, code: Path) -> None:
    seen = engine(tmp_path, code, device="cpu")
    assert not {"cache_files", "failed_uploads"} & seen.measured.keys()
    assert seen.measured["memory_bytes"] > 2**20


def test_an_engine_of_too_much_memory_on_a_cpu(tmp_path: Path, code: Path) -> None:
    assert "within-memory-cap" in engine(tmp_path, code, "hungry", device="cpu", memory_cap_gib=0.09).clauses(
        Outcome.FAIL
    )


def compiled(*cells: tuple[Any, int, str]) -> list[bytes]:
    """Images of kernels for targets, as machine code or as PTX."""
    pytest.importorskip("cuda.bindings")
    from falsifiers.blackwell.reference.kernels.nvrtc import Form, compile_kernel

    return [compile_kernel(spec, sm, Form[form]).data for spec, sm, form in cells]


def whole(*without: tuple[str, int]) -> list[tuple[Any, int, str]]:
    """Every kernel for every target, except the given ones."""
    return [(spec, sm, "CUBIN") for spec in KERNELS for sm in TARGETS if (spec.key, sm) not in without]


def test_a_target_that_the_library_lacks(tmp_path: Path, gpu: None) -> None:
    lacking = library(tmp_path, compiled(*whole(*((spec.key, 121) for spec in KERNELS))))
    seen = engine(tmp_path, lacking)
    assert seen.clauses(Outcome.FAIL) == {"absent.maxItems"}
    assert "add for sm_121" in cells_of(seen.measured["absent"])


def test_one_kernel_of_a_target_is_only_ptx(tmp_path: Path, gpu: None) -> None:
    images = compiled(*whole(("add", 121)), (add(), 90, "PTX"))
    seen = engine(tmp_path, library(tmp_path, images))
    assert seen.clauses(Outcome.FAIL) == {"not_machine_code.maxItems"}
    assert cells_of(seen.measured["not_machine_code"]) == ["add for sm_121"]


def test_a_kernel_that_the_library_lacks(tmp_path: Path, gpu: None) -> None:
    seen = engine(tmp_path, library(tmp_path, compiled(*whole(("add", 120), ("add", 121)))))
    assert [re.findall(r"\^add\$|sm_\d+", line) for line in seen.measured["absent"]] == [
        ["^add$", f"sm_{sm}"] for sm in TARGETS
    ]


def test_code_whose_header_was_forged(tmp_path: Path, gpu: None) -> None:
    images = [bytearray(image) for image in compiled(*whole(("add", 121)), (add(), 120, "CUBIN"))]
    images[-1][49] = 121
    seen = engine(tmp_path, library(tmp_path, [bytes(image) for image in images]))
    assert seen.clauses(Outcome.FAIL) == {"other_target.maxItems"}


def test_an_engine_that_writes_its_ptx_itself_is_neither_refuted_nor_passed(tmp_path: Path, gpu: None) -> None:
    """The engine has no ELF image but pieces of PTX. The clause is NOT_MEASURED, and the reason has both facts."""
    writer = library(tmp_path, [b".version 8.0\n.target sm_\0.visible .entry \0"])
    seen = engine(tmp_path, writer)
    assert seen.clauses(Outcome.FAIL) == set()
    assert not {"kernels", "cells", "absent", "not_machine_code", "other_target"} & seen.measured.keys()
    assert seen.unseen["kernels"].count("libengine.so") == 2
    assert "PTX" in seen.unseen["kernels"]


def test_a_library_that_is_not_there_hides_nothing_else(tmp_path: Path, gpu: None) -> None:
    seen = engine(tmp_path, tmp_path / "nowhere.so")
    assert "/device_code/files" in seen.unseen["kernels"]
    assert "nowhere.so" in seen.unseen["kernels"]
    assert seen.measured["losses"]


def test_a_library_that_cannot_be_read_hides_nothing_else(
    tmp_path: Path, code: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(external, "inspect", unreadable)
    seen = engine(tmp_path, code)
    assert seen.unseen["kernels"].startswith(str(code))
    assert seen.unseen["kernels"].endswith("Permission denied")
    assert seen.measured["losses"]


def test_a_trainers_file_that_sets_the_cache_itself_is_refused(tmp_path: Path, gpu: None) -> None:
    mine = tmp_path / "mine.toml"
    text = (PROJECT.root / ENGINE).read_text().replace("{here}", str(PROJECT.root / "tests" / "tools" / "trainer"))
    mine.write_text(text.replace("[command.environment]", "[command.environment]\nCUDA_CACHE_PATH = '/tmp/mine'"))
    assert "/command/environment/CUDA_CACHE_PATH" in engine(tmp_path, tmp_path, trainer=str(mine)).reason

"""Somebody else's engine against F-BLACKWELL-PTX-001: a healthy one, and every defect on the clause that names it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from falsifiers.blackwell.archived import outside_engine, training
from falsifiers.blackwell.archived.external import Command, Recorded
from falsifiers.blackwell.reference.kernels.catalogue import add, silu_gate, silu_gate_backward
from harness import NotMeasured, Setting, Trial
from harness.judge import judge
from harness.observation import Ending, EndingKind, Observation, Phase
from harness.project import Project
from harness.trial import SubjectFault
from harness.verdict import Outcome
from tests.cli.harness_command import COMMAND, environment

PTX = "F-BLACKWELL-PTX-001"
PROJECT = Project.find(Path(__file__).parent)
ENGINE = "tests/external/ptx-engine.toml"
APR = "trainers/apr-distill.toml"
TARGETS = [120, 121]
KERNELS = (add(), silu_gate(), silu_gate_backward())
FROM_OUTSIDE_NEVER = {
    "other_kernel", "stale", "altered", "rebuilt", "not_reproduced", "nvrtc_calls", "refused_loads", "unlaunched",
    "torch_products", "blocks-run-own-kernels", "children", "images-rebuilt", "resolved.dtype", "residency",
}  # fmt: skip


class AnyGpu(AbstractContextManager["AnyGpu"]):
    """A device of sm_121 that the engine was seen on, with 4 GiB in use."""

    reason = ""
    capability = 121
    peak_bytes = 4 * 2**30
    free_bytes: int | None = 120 * 2**30
    was_used = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was started."""


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A falsifier sets variables for its own process, which here is the test's; entry points count from the root."""
    before = dict(os.environ)
    monkeypatch.chdir(PROJECT.root)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, as far as the falsifier can tell, whose driver refuses PTX."""
    monkeypatch.setattr(outside_engine, "DeviceWatch", AnyGpu)
    monkeypatch.setattr(outside_engine, "see_that_ptx_is_refused", lambda: None)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with machine code of three kernels for both targets, as any linker would leave it."""
    pytest.importorskip("cuda.bindings")
    from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel

    images = [compile_kernel(spec, sm).data for spec in KERNELS for sm in TARGETS]
    return library(tmp_path_factory.mktemp("code"), images)


def library(folder: Path, images: list[bytes]) -> Path:
    """A file with these images among other bytes."""
    path = folder / "libengine.so"
    path.write_bytes(b"\x7fELF of a host\0" + b"".join(image + bytes(64) for image in images) + b"\0end")
    return path


class Seen:
    """What a trial measured, what ended it, and how the contract judges that."""

    def __init__(self, folder: Path, subject: type, device: str = "cuda:0", **parameters: Any) -> None:
        contract = PROJECT.contract(PTX)
        asked = {
            **contract.profiles["full"].parameters,
            "targets": TARGETS,
            "steps": 6,
            "trainer": ENGINE,
            **parameters,
        }
        heard: dict[str, dict[str, Any]] = {"measure": {}, "resolve": {}}

        def report(message: dict[str, Any]) -> None:
            heard.setdefault(message["kind"], {}).update(message.get("values", {}))

        workspace = folder / "workspace"
        workspace.mkdir()
        declared = frozenset(contract.document["observation"]["properties"])
        trial: Trial[Any] = Trial(Setting(asked, device, 1, workspace, folder / "cache"), workspace, declared, report)
        trial.build(subject)
        ending = Ending(EndingKind.COMPLETED)
        try:
            training.falsify(trial)
            trial.finish()
            trial.tell_what_was_hidden()
        except SubjectFault as fault:
            ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, str(fault))
        except NotMeasured as why:
            ending = Ending(EndingKind.NOT_MEASURED, Phase.FALSIFIER, str(why))
        self.reason = ending.reason
        self.measured, self.resolved = heard["measure"], heard["resolve"]
        observation = Observation(
            subject=contract.subject, profile="full", parameters=asked, device={"type": device.partition(":")[0]},
            measurements=self.measured, resolved=self.resolved, ending=ending,
        )  # fmt: skip
        self._outcomes = {clause.id: clause.outcome for clause in judge(contract, observation).clauses}

    def clauses(self, outcome: Outcome) -> set[str]:
        """The clauses that came out so."""
        return {name for name, found in self._outcomes.items() if found is outcome}


def engine(folder: Path, code: Path, fail: str = "", **parameters: Any) -> Seen:
    """The stand-in, run."""
    return Seen(folder, Command, code=str(code), fail=fail, **parameters)


def test_a_healthy_engine_passes_wherever_it_can_be_seen_and_nowhere_else(
    tmp_path: Path, code: Path, gpu: None
) -> None:
    seen = engine(tmp_path, code)
    assert seen.clauses(Outcome.FAIL) == set()
    unseen = {re.split(r"[.\[]", name)[0] if "resolved" not in name else name
              for name in seen.clauses(Outcome.NOT_MEASURED)}  # fmt: skip
    assert unseen - {"subject"} == FROM_OUTSIDE_NEVER
    assert seen.resolved == {"device": "cuda", "steps": 6}
    assert (seen.measured["kernels"], seen.measured["cells"], seen.measured["memory_bytes"]) == (3, 6, 4 * 2**30)
    assert (seen.measured["cache_files"], seen.measured["reported_compilations"]) == ([], 0)
    assert seen.reason == "what its kernels were compiled from is not seen from outside"


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
    assert seen.measured["other_target"] == ["its kernels were loaded for sm_90, and the device is sm_121"]


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

    monkeypatch.setattr(outside_engine, "see_that_ptx_is_refused", refuses)
    seen = engine(tmp_path, code)
    assert ("cache_files" in seen.measured, seen.reason) == (False, "the driver compiled our PTX")


def test_memory_that_others_hold_is_not_the_engines_fault(
    tmp_path: Path, code: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnyGpu, "free_bytes", 2 * 2**30)
    seen = engine(tmp_path, code, "upload")
    assert (seen.clauses(Outcome.FAIL), seen.reason) == (set(), "others left 2.0 of the 24 GiB that it may take")


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
    """Every kernel for every target, but some."""
    return [(spec, sm, "CUBIN") for spec in KERNELS for sm in TARGETS if (spec.key, sm) not in without]


def test_a_target_that_the_library_lacks(tmp_path: Path, gpu: None) -> None:
    lacking = library(tmp_path, compiled(*whole(*((spec.key, 121) for spec in KERNELS))))
    seen = engine(tmp_path, lacking)
    assert seen.clauses(Outcome.FAIL) == {"absent.maxItems"}
    assert "add for sm_121: only machine code for sm_120" in seen.measured["absent"]


def test_one_kernel_of_a_target_is_only_ptx(tmp_path: Path, gpu: None) -> None:
    images = compiled(*whole(("add", 121)), (add(), 90, "PTX"))
    seen = engine(tmp_path, library(tmp_path, images))
    assert seen.clauses(Outcome.FAIL) == {"not_machine_code.maxItems"}
    assert seen.measured["not_machine_code"] == ["add for sm_121: only PTX for sm_90"]


def test_a_kernel_that_the_library_lacks(tmp_path: Path, gpu: None) -> None:
    seen = engine(tmp_path, library(tmp_path, compiled(*whole(("add", 120), ("add", 121)))))
    assert seen.measured["absent"] == [f"a kernel like ^add$ for sm_{sm}: no code" for sm in TARGETS]


def test_code_whose_header_was_forged(tmp_path: Path, gpu: None) -> None:
    images = [bytearray(image) for image in compiled(*whole(("add", 121)), (add(), 120, "CUBIN"))]
    images[-1][49] = 121
    seen = engine(tmp_path, library(tmp_path, [bytes(image) for image in images]))
    assert seen.clauses(Outcome.FAIL) == {"other_target.maxItems"}


def test_an_engine_that_writes_its_ptx_itself_is_neither_refuted_nor_passed(tmp_path: Path, gpu: None) -> None:
    """No ELF image at all, and pieces of PTX: the reason says so."""
    writer = library(tmp_path, [b".version 8.0\n.target sm_\0.visible .entry \0"])
    seen = engine(tmp_path, writer)
    assert seen.clauses(Outcome.FAIL) == set()
    assert not {"kernels", "cells", "absent", "not_machine_code", "other_target"} & seen.measured.keys()
    assert "libengine.so: no code for a GPU" in seen.reason
    assert "may write PTX when it runs" in seen.reason


def test_a_library_that_is_not_there_hides_nothing_else(tmp_path: Path, gpu: None) -> None:
    seen = engine(tmp_path, tmp_path / "nowhere.so")
    assert "there is no file" in seen.reason
    assert seen.measured["losses"]


def test_a_trainers_file_that_sets_the_cache_itself_is_refused(tmp_path: Path, gpu: None) -> None:
    mine = tmp_path / "mine.toml"
    text = (PROJECT.root / ENGINE).read_text().replace("{here}", str(PROJECT.root / "tests" / "external"))
    mine.write_text(text.replace("[command.environment]", "[command.environment]\nCUDA_CACHE_PATH = '/tmp/mine'"))
    assert "the claim sets it" in engine(tmp_path, tmp_path, trainer=str(mine)).reason


GB10 = (
    b"\x1b[1m=== APR Distill ===\x1b[0m\n"
    b"[CUDA] cuBLAS initialized \xe2\x80\x94 forward TF32 tensor cores (41x vs SIMD)\n"
    b"\x1b[36m[CUDA] Kernel cache initialized for target: sm_121\x1b[0m\n"
    b"[FWD-CACHE] Compiling 'silu_forward' (ptx_len=2311)\n[FWD-CACHE] OK 'silu_forward'\n"
    b"\r 50%|###   | loading blocks\r[FWD-CACHE] Compiling 'batched_rmsnorm_fwd_896' (ptx_len=4807)\r"
    b"[CUDA] Pre-warmed 27 forward kernels (JIT compiled before block upload)\r\n"
    b"[BWD-PREWARM] Skipping (lora_rank=0)\n"
    b"\xe2\x9c\x93 Backward kernels pre-warmed (silu_backward, rms_norm_backward, etc.)\n"
)
OOM = (
    b"error: Validation failed: CudaTrainerTeacher load: Internal error: Block 0 upload failed: KernelError("
    b'"MemoryAllocation(\\"CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY (code: 2)\\")")\n'
)
TRAINED = (
    b"[FWD-CACHE] Compiling 'silu_backward' (ptx_len=99)\ninitial_loss = 7.6746\n"
    b"\r\x1b[32m 50%\x1b[0m Step 25/50 loss=7.4\r\x1b[32m100%\x1b[0m Step 50/50 loss=7.2036\n"
    b"final_loss   = 7.2036\n50 steps, 122.7s\n[FWD-CACHE] Compi"
)


def recorded(folder: Path, log: bytes, **parameters: Any) -> Seen:
    """A run of apr on gx10 that is over."""
    place = folder / "run"
    place.mkdir(exist_ok=True)
    (place / "launch.log").write_bytes(log)
    asked = {"trainer": APR, "dir": str(place), "ran_on": "cuda", "steps": 50, **parameters}
    return Seen(folder, Recorded, device="cpu", **asked)


def test_the_run_that_ran_out_at_the_first_block(tmp_path: Path) -> None:
    """PMAT-700, as gx10 printed it."""
    seen = recorded(tmp_path, GB10 + OOM)
    failed = {"subject.completes", "failed_uploads.maxItems", "reported_compilations.const"}
    assert seen.clauses(Outcome.FAIL) == failed
    assert seen.measured["reported_compilations"] == 2
    assert seen.resolved == {"device": "cuda"}


def test_a_finished_run_tells_what_was_compiled_late(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The cut last line is not believed, and the first and last loss are the run's own account."""
    seen = recorded(tmp_path, GB10 + TRAINED)
    assert seen.clauses(Outcome.FAIL) == {"reported_compilations.const"}
    assert (seen.measured["reported_compilations"], seen.measured["failed_uploads"]) == (3, [])
    assert (list(seen.measured["losses"]), seen.resolved["steps"]) == ([7.6746, 7.2036], 50)
    assert "compiled after the end of the warm-up: 1: silu_backward" in capfd.readouterr().out
    assert "-P apr=/path/to/apr" in seen.reason


def test_an_empty_compute_cache_of_a_run_that_is_over_shows_nothing(tmp_path: Path) -> None:
    """Anybody may have made it."""
    (tmp_path / "run" / "compute-cache").mkdir(parents=True)
    assert "cache_files" not in recorded(tmp_path, GB10).measured


def test_a_run_without_a_log_shows_its_cache_all_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "run" / "compute-cache" / "9"
    cache.mkdir(parents=True)
    (cache / "f00").write_bytes(b"code")
    place = tmp_path / "run"
    seen = Seen(tmp_path, Recorded, device="cpu", trainer=APR, dir=str(place), ran_on="cuda")
    assert seen.clauses(Outcome.FAIL) == {"cache_files.maxItems"}
    assert seen.measured["cache_files"] == ["9/f00"]


def command_line(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and output of `harness run`; the mutants run elsewhere."""
    asked = ["run", PTX, "--device", "cpu", "--no-mutants", "--evidence", str(folder / "evidence"), *options]
    done = subprocess.run(
        [*COMMAND, *asked], cwd=PROJECT.root, env=environment(folder), capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def sealed(folder: Path) -> dict[str, Any]:
    """The only bundle's record, which is sound."""
    (path,) = (folder / "evidence").rglob("record.json")
    verified = subprocess.run([*COMMAND, "verify", str(path.parent)], cwd=PROJECT.root, capture_output=True, text=True)
    assert "1 sound, 0 unsound" in verified.stdout
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_from_the_command_line_an_engine_is_judged_as_far_as_it_is_seen(tmp_path: Path, code: Path) -> None:
    """Exit 3: nothing failed. The record names the trainer's file, and the bundle has what the library holds."""
    said = ["--subject", f"command:{ENGINE}", "-P", f"code={code}", "-P", "targets=[120,121]"]
    status, output = command_line(tmp_path, *said)
    assert status == 3, output
    record = sealed(tmp_path)
    assert (record["verdict"], record["resolved"]) == ("NOT_MEASURED", {"device": "cpu", "steps": 3})
    assert {ENGINE, "tests/external/ptx_engine.py"} <= record["sources"].keys()
    (held,) = (tmp_path / "evidence").rglob("device-code.json")
    (inspection,) = json.loads(held.read_text())
    assert len(inspection["device_code"]) == 6


def test_from_the_command_line_the_run_on_gx10_fails(tmp_path: Path) -> None:
    """`harness run F-BLACKWELL-PTX-001 --subject recorded:trainers/apr-distill.toml -P dir=RUN`, exit 1."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "launch.log").write_bytes(GB10 + OOM)
    said = ["--subject", f"recorded:{APR}", "-P", f"dir={place}", "-P", "apr=/bin/true"]
    status, output = command_line(tmp_path, *said)
    assert status == 1, output
    assert "Block 0 upload failed" in output
    assert sealed(tmp_path)["verdict"] == "FAIL"


def test_an_engine_that_hangs_is_ended_and_was_at_fault(tmp_path: Path, code: Path) -> None:
    """A trial has its limit; the engine ends with it."""
    mine = PROJECT.root / "tests" / "external" / f"hangs-{os.getpid()}.toml"
    mine.write_text((PROJECT.root / ENGINE).read_text().replace("[command]\n", "[command]\nseconds = 8\n"))
    try:
        said = ["--subject", f"command:{mine}", "-P", f"code={code}", "-P", "fail=hangs", "-P", "targets=[120,121]"]
        status, output = command_line(tmp_path, *said)
    finally:
        mine.unlink()
    assert status == 1, output
    assert "subject.completes" in output

"""External engines, their output, and the judgment of the contract on a trial of one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from falsifiers.blackwell.archived import falsifier
from falsifiers.blackwell.archived.external import Command
from falsifiers.blackwell.reference.kernels.catalogue import add, silu_gate, silu_gate_backward
from harness import NotMeasured, Setting
from harness.authoring.faults import SubjectFault
from harness.authoring.reports import Measured, Resolved, TrialReport, Unseen
from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind, Observation

PTX = "F-BLACKWELL-ARCHIVE-001"
PROJECT = Project.find(Path(__file__).parent)
ENGINE = "tests/tools/trainer/ptx-engine.toml"
APR = "trainers/apr-distill.toml"
TARGETS = [120, 121]
KERNELS = (add(), silu_gate(), silu_gate_backward())


class AnyGpu(AbstractContextManager["AnyGpu"]):
    """A device of sm_121 that the engine used, with 4 GiB in use."""

    reason = ""
    capability = 121
    peak_bytes = 4 * 2**30
    free_bytes: int | None = 120 * 2**30
    was_used = True
    users = 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, because nothing was started."""


def library(folder: Path, images: list[bytes]) -> Path:
    """A file that has these images among other bytes."""
    path = folder / "libengine.so"
    path.write_bytes(b"\x7fELF of a host\0" + b"".join(image + bytes(64) for image in images) + b"\0end")
    return path


class Seen:
    """The measurements of a trial, its ending, and the outcome of every clause."""

    def __init__(self, folder: Path, subject: type, device: str = "cuda:0", **parameters: Any) -> None:
        contract = PROJECT.contract(PTX)
        asked = {
            **contract.profiles["full"].parameters,
            "targets": TARGETS,
            "steps": 6,
            "trainer": ENGINE,
            **parameters,
        }
        heard: dict[type, dict[str, Any]] = {Measured: {}, Resolved: {}, Unseen: {}}

        def report(said: TrialReport) -> None:
            heard.setdefault(type(said), {}).update(getattr(said, "values", {}))

        workspace = folder / "workspace"
        workspace.mkdir()
        declared = frozenset(contract.document["observation"]["properties"])
        run = WorkerTrial(Setting(asked, device, 1, workspace, folder / "cache"), workspace, declared, report)
        ending = Ending(EndingKind.COMPLETED)
        try:
            run.run(falsifier.falsify, subject)
        except SubjectFault as fault:
            ending = Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, str(fault))
        except NotMeasured as why:
            ending = Ending(EndingKind.NOT_MEASURED, Phase.FALSIFIER, str(why))
        self.reason = ending.reason
        self.measured, self.resolved, self.unseen = heard[Measured], heard[Resolved], heard[Unseen]
        observation = Observation(
            subject=contract.subject, profile="full", parameters=asked,
            device=Device(device.partition(":")[0], "a device"),
            measurements=self.measured, resolved=self.resolved, ending=ending,
        )  # fmt: skip
        self._outcomes = {clause.id: clause.outcome for clause in judge(contract, observation).clauses}

    def clauses(self, outcome: Outcome) -> set[str]:
        """The clauses with this outcome."""
        return {name for name, found in self._outcomes.items() if found is outcome}


def engine(folder: Path, code: Path, fail: str = "", **parameters: Any) -> Seen:
    """Run the stand-in for an engine."""
    return Seen(folder, Command, code=str(code), fail=fail, **parameters)


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

"""An engine for F-BLACKWELL-PTX-001 and others: a command of a trainer's file, watched at the CUDA driver."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import NotMeasured, Setting
from harness.authoring.device_watch import DeviceWatch
from harness.tools.recorder.libraries import planted, recorder, recording
from harness.tools.recorder.records import JIT_DISABLED, Control, Recording, control, read
from harness.tools.trainer.adapter import CommandRun
from harness.tools.trainer.command_line import OutOfMemory

_MOST_FILES = 1000
_TRAINER = "trainers/engines/reference.toml"


class Command(CommandRun):
    """An engine that the harness runs. The parameter `planted` names a defect at its boundary to the driver."""

    may_compile = False
    """Whether the driver may compile PTX."""
    leaves_out_library = False
    """Whether launches by cuBLAS between cuProfilerStart and cuProfilerStop are left out."""
    control: Control
    """What the driver answered; after `prepare`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._records = setting.workspace / "driver"
        self._cache = setting.workspace / "compute-cache"

    def prepare(self) -> None:
        """Build the recorder, and run the control.

        Raises:
            NotMeasured: the recorder does not work here, or the driver compiles PTX although it must not.
        """
        taken = {"CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE", "CUDA_INJECTION64_PATH", "CUDA_FORCE_PTX_JIT"}
        if others := taken & self.trainer.environment.keys():
            raise NotMeasured(f"{self.trainer.path}: /command/environment/{min(others)}: the claim sets it; remove it")
        workspace = self.setting.workspace
        self._records.mkdir(parents=True)
        self._cache.mkdir()
        library = recorder(self.setting.cache)
        variables = {
            "CUDA_DISABLE_PTX_JIT": "0" if self.may_compile else "1",
            "CUDA_CACHE_PATH": str(self._cache),
            "CUDA_CACHE_DISABLE": "0",
            "CUDA_FORCE_PTX_JIT": "0",
        }
        # The driver makes an index of its cache when it refuses PTX, too.
        elsewhere = workspace / "control-cache"
        elsewhere.mkdir()
        self.control = seen = control(library, workspace / "control", {**variables, "CUDA_CACHE_PATH": str(elsewhere)})
        if not self.may_compile and seen.result != JIT_DISABLED:
            raise NotMeasured(f"CUDA_DISABLE_PTX_JIT=1 has no effect here: the driver answered PTX with {seen.result}")
        trainer = self.trainer
        own = {name: text for name, text in trainer.environment.items() if trainer.has_values(text, self.values)}
        given = {**variables, **own, **recording(library, self._records)}
        if self.setting.parameters["planted"] or self.leaves_out_library:
            before = own.get("LD_LIBRARY_PATH") or os.environ.get("LD_LIBRARY_PATH", "")
            given |= planted(self.setting.parameters["planted"], seen.driver, self.setting.cache, before)
        if self.leaves_out_library:
            given["HARNESS_WITHOUT_LIBRARY"] = "1"
        self.trainer = replace(self.trainer, environment=given)

    def watch(self) -> DeviceWatch:
        return DeviceWatch()

    def work(self, on_step: Callable[..., None]) -> None:
        """Run the command to its end.

        Raises:
            CommandFailed: the command failed, or printed that it ran out of GPU memory, whatever its exit status.
            NotMeasured: it could not be started, or the machine interfered.
        """
        telling = self.listen(on_step)
        if telling.out_of_memory:
            raise OutOfMemory(f"{self.trainer.name} ended with status 0 but printed: {telling.out_of_memory}")

    def recording(self) -> Recording:
        return read(self._records)

    def cache_files(self) -> Sequence[Path]:
        """The files in the driver's compute cache, which was empty."""
        paths = (path for path in sorted(self._cache.rglob("*")) if path.is_file())
        return [path for path, _ in zip(paths, range(_MOST_FILES), strict=False)]

    def ran(self) -> dict[str, Any]:
        """The values that ran. The driver names the device: it launched kernels there and allocated memory."""
        resolved = super().ran()
        recording = self.recording()
        if recording.launches:
            resolved |= {"device": "cuda", "allocated_bytes": recording.allocated_bytes}
        return resolved

    def unheard(self) -> str:
        """See `ExternalSubject`. The claim needs no line of the output, if the driver was recorded."""
        return "" if self.recording().processes else super().unheard()


class Reference(Command):
    """Our own engine in a process of its own, for a run without --subject."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(replace(setting, parameters={**setting.parameters, "trainer": _TRAINER}))

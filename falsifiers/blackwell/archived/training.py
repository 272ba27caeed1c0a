"""F-BLACKWELL-PTX-001: every kernel is there as machine code for every target, and training compiles nothing."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Final, cast

import torch

from falsifiers.blackwell.archived.check import check, not_reproduced
from falsifiers.blackwell.archived.outside_engine import OutsideEngine, look_from_outside
from falsifiers.blackwell.archived.subject import ArchivedEngine, TrainedModel
from falsifiers.blackwell.compilation_watch import forbid_compiling, see_that_ptx_is_refused, watching
from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.step_watch import watching_steps
from harness import Trial

__all__ = ["falsify"]

_GIB: Final = 2**30


def falsify(trial: Trial[ArchivedEngine]) -> None:
    """Ask every image of the archive what it is; then train where the driver must not compile, and look for traces."""
    computed = forbid_compiling(trial.workspace)
    if trial.is_elsewhere:
        look_from_outside(cast("Trial[OutsideEngine]", trial), computed)
        return
    specs = block_kernels(SHAPES[trial.parameters["model"]])
    with trial.subject_fault():
        folder = trial.subject.archive()
    _look_at(trial, folder, specs)
    on_gpu = trial.device.startswith("cuda")
    if on_gpu:
        see_that_ptx_is_refused()
        # Within the cap torch's allocator runs out as it would on a device of that size; the driver's part is measured.
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, trial.parameters["memory_cap_gib"] * _GIB / whole))
    before = _files(computed)  # the driver, asked for PTX, has looked into its cache and left a table of contents there
    with watching() as seen:
        try:
            _train(trial, _started(trial))
        finally:
            trial.measure(
                nvrtc_calls=seen.nvrtc,
                reported_compilations=trial.subject.compilations(),
                unlaunched=sorted({spec.key for spec in specs} - set(trial.subject.launched())),
            )
            if on_gpu:  # elsewhere there is no driver that could have compiled anything
                files = sorted(path.name for path in _files(computed) - before)
                trial.measure(refused_loads=seen.refused, cache_files=files)


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _look_at(trial: Trial[ArchivedEngine], folder: Path, specs: tuple[KernelSpec, ...]) -> None:
    with trial.subject_fault():
        archive = Archive.open(folder)  # no archive, or an index that cannot be read, is the subject's defect
    targets = trial.parameters["targets"]
    result = check(archive, specs, targets)
    trial.measure(
        kernels=len(specs),
        cells=result.cells,
        absent=result.absent,
        not_machine_code=result.not_machine_code,
        other_target=result.other_target,
        other_kernel=result.other_kernel,
        stale=result.stale,
        altered=result.altered,
    )
    # An index may claim any source. That the bytes follow from ours, only compiling again shows.
    chance = random.Random(trial.seed)  # noqa: S311 - chance, and no secret
    few = min(trial.parameters["rebuilt_targets"], len(targets))
    cells = [(spec, sm) for spec in specs for sm in chance.sample(targets, few)]
    trial.measure(rebuilt=len(cells), not_reproduced=not_reproduced(archive, cells))


def _started(trial: Trial[ArchivedEngine]) -> TrainedModel:
    """The model, its weights on the device; where they do not fit, that is told apart from other faults."""
    with trial.subject_fault():
        try:
            model = trial.subject.start()
        except torch.OutOfMemoryError as error:
            trial.measure(failed_uploads=[str(error)])
            raise
    trial.measure(failed_uploads=[])
    return model


def _train(trial: Trial[ArchivedEngine], model: TrainedModel) -> None:
    """Train on one batch again and again; the optimizer and the count of steps are ours."""
    parameters = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)
    size = (parameters["batch"], parameters["sequence"] + 1)
    weights = list(model.parameters())
    tokens = torch.randint(parameters["vocabulary"], size, generator=generator).to(weights[0].device)
    optimizer = torch.optim.AdamW(weights, lr=parameters["learning_rate"])
    losses: list[float] = []
    memory = [_taken(trial)]
    with watching_steps() as seen:
        for step in range(1, parameters["steps"] + 1):
            with trial.subject_fault():
                optimizer.zero_grad()
                loss = model.loss(tokens)
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            memory.append(_taken(trial))
            trial.step(step, loss=losses[-1], memory_bytes=memory[-1])
    trial.measure(losses=losses, memory_bytes=max(memory), torch_products=seen.products, children=seen.children[:20])
    trial.resolve(device=weights[0].device.type, dtype=str(weights[0].dtype).removeprefix("torch."), steps=len(losses))


def _taken(trial: Trial[ArchivedEngine]) -> int:
    """Bytes in use: on CUDA as the driver tells, of the whole device, which is ours alone; else of this process."""
    if trial.device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        return total - free
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

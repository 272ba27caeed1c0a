"""F-BLACKWELL-ARCHIVE-001: the archive has machine code for every kernel and target, and training compiles nothing."""

import os
import random
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from falsifiers.blackwell.archived.archive_check import check, not_reproduced
from falsifiers.blackwell.archived.outside_engine import look_from_outside
from falsifiers.blackwell.measuring.block_cases import offset_scores, raise_gates, raise_token
from falsifiers.blackwell.measuring.gradient_errors import other_weights, relative_error
from falsifiers.blackwell.oracle.qwen2 import SHAPES as TRUE_SHAPES
from falsifiers.blackwell.oracle.qwen2 import TrueModel
from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.subjects.archived import ArchivedEngine, TrainedModel
from falsifiers.blackwell.watching.archive_use import UseWatch, watching_use
from falsifiers.blackwell.watching.compilations import forbid_compiling, see_that_ptx_is_refused, watching
from falsifiers.blackwell.watching.steps import watching_steps
from harness import NotMeasured, Trial, for_external

_GIB: Final = 2**30
_HOST_COMPILERS: Final = ("/g++", "/clang++")
"""Programs that build the kernels' text for a CPU, which runs no machine code of a GPU."""
_PASSES_AFTERWARDS: Final = 1
"""Passes after the last step: the one with raised keys."""


@for_external(look_from_outside)
def falsify(trial: Trial[ArchivedEngine]) -> None:
    """Inspect every image of the archive; then train while the driver must not compile, and look for compilations."""
    computed = forbid_compiling(trial.workspace)
    specs = block_kernels(SHAPES[trial.parameters["model"]])
    with trial.subject_fault():
        folder = trial.subject.archive()
    archive = _look_at(trial, folder, specs)
    on_gpu = trial.device.startswith("cuda")
    used_before = _see_that_it_could_run(trial) if on_gpu else 0
    before = _files(computed)  # the check for PTX made the driver write an index into its cache
    with watching() as seen, watching_use(folder, on_gpu=on_gpu) as used:
        try:
            _train(trial, *_started(trial), used_before)
            _measure_use(trial, specs, used, archive)
        finally:
            with trial.subject_fault():
                trial.measure(reported_compilations=trial.subject.compilations())
            trial.measure(nvrtc_calls=seen.nvrtc)
            if on_gpu:  # a CPU has no driver that could compile
                files = sorted(path.name for path in _files(computed) - before)
                trial.measure(refused_loads=seen.refused, cache_files=files)


def _see_that_it_could_run(trial: Trial[ArchivedEngine]) -> int:
    """Check that the device is a target, has free memory, and refuses PTX.

    Returns:
        Bytes in use on the device before training.

    Raises:
        NotMeasured: one of these is not so.
    """
    see_that_ptx_is_refused()
    sm, targets = _capability(), list(trial.parameters["targets"])
    if sm not in targets:
        raise NotMeasured(f"this GPU is sm_{sm}, which is not in {targets}; add it: -P targets={[*targets, sm]}")
    cap = trial.parameters["memory_cap_gib"] * _GIB
    free, whole = torch.cuda.mem_get_info()
    if free < cap:
        raise NotMeasured(f"{free / _GIB:.1f} GiB are free; the engine may need {cap / _GIB:g} GiB")
    # torch's allocator runs out at the cap, as on a device of that size; memory of the driver is measured.
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole))
    return int(whole - free)


def _measure_use(trial: Trial[ArchivedEngine], specs: Iterable[KernelSpec], used: UseWatch, archive: Archive) -> None:
    """Measure whether every block launched each of its kernels in every step, from an image of the archive."""
    with trial.subject_fault():
        launches = dict(trial.subject.launched())
    if trial.device.startswith("cuda"):  # the engine's count is limited by the launches that were seen
        own = [entry for entry in archive.entries.values() if entry.sm == _capability()]
        images = {entry.kernel: (entry.sha256, entry.kernel) for entry in own}
        launches = {key: min(stated, used.launches[images[key]]) for key, stated in launches.items() if key in images}
    files: dict[str, set[str]] = {}
    for entry in archive.entries.values():
        files.setdefault(entry.kernel, set()).add(os.path.realpath(archive.folder / entry.file))
    least = trial.parameters["layers"] * (trial.parameters["steps"] + _PASSES_AFTERWARDS)
    counts = {spec.key: launches.get(spec.key, 0) for spec in specs}
    trial.measure(
        unlaunched=[f"{key}: {count} of {least} launches" for key, count in counts.items() if count < least],
        unread=[key for key in counts if not files.get(key, set()) & used.opened],
    )


def _capability() -> int:
    major, minor = torch.cuda.get_device_capability(0)
    return 10 * major + minor


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def _look_at(trial: Trial[ArchivedEngine], folder: Path, specs: tuple[KernelSpec, ...]) -> Archive:
    with trial.subject_fault():  # a missing archive, an unreadable index or other types are the subject's fault
        archive = Archive.open(folder)
        if not isinstance(archive.folder, Path) or not isinstance(archive.entries, Mapping):
            raise TypeError(f"not an archive: {archive!r}"[:200])
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
    # An index may name any source. Only a new compilation shows that the bytes come from ours.
    chance = random.Random(trial.seed)  # noqa: S311 - not used for security
    few = min(trial.parameters["rebuilt_targets"], len(targets))
    cells = [(spec, sm) for spec in specs for sm in chance.sample(targets, few)]
    trial.measure(rebuilt=len(cells), not_reproduced=not_reproduced(archive, cells))
    return archive


def _started(trial: Trial[ArchivedEngine]) -> tuple[TrainedModel, list[str]]:
    """Start the engine. Returns the model, and the processes that were started meanwhile.

    If the weights do not fit, that is measured as `failed_uploads`.
    """
    with watching_steps() as seen, trial.subject_fault():
        if (count := trial.subject.compilations()) != 0:
            raise ValueError(f"the engine has compiled {count} kernels before its start")
        try:
            model = trial.subject.start()
        except torch.OutOfMemoryError as error:
            trial.measure(failed_uploads=[str(error)])
            raise
    children = list(seen.children)
    if not trial.device.startswith("cuda"):  # on a CPU the engine builds the kernels' text with the host compiler
        children = [child for child in children if not child.endswith(_HOST_COMPILERS)]
    trial.measure(failed_uploads=[], children=children[:20])
    return model, children


def _train(trial: Trial[ArchivedEngine], model: TrainedModel, children: list[str], used_before: int) -> None:
    """Train on one batch repeatedly. The optimizer and the count of steps are the falsifier's.

    Compared are the first two steps, because a gradient that is added to an older one shows in the second, the last
    step, and one that the seed draws.
    """
    parameters = trial.parameters
    generator = torch.Generator().manual_seed(trial.seed)
    size = (parameters["batch"], parameters["sequence"] + 1)
    with trial.subject_fault():
        weights = list(model.parameters())
        if not weights:
            raise ValueError("the model has no parameters")
    tokens = torch.randint(parameters["vocabulary"], size, generator=generator).to(weights[0].device)
    truth = TrueModel(TRUE_SHAPES[parameters["model"]], parameters["layers"], parameters["vocabulary"])
    other = other_weights(weights, truth.parameters)
    trial.measure(other_weights=other[:20])
    if not other:
        _make_unusual(trial, dict(zip(truth.parameters, weights, strict=True)))
    optimizer = torch.optim.AdamW(weights, lr=parameters["learning_rate"])
    memory = [_taken(trial)]
    last = parameters["steps"]
    drawn = random.Random(trial.seed).randint(1, last)  # noqa: S311 - not used for security
    errors: list[float] = []
    loss_errors: list[float] = []
    losses: list[float] = []
    with watching_steps() as seen:
        for step in range(1, last + 1):
            optimizer.zero_grad()
            compared = step in (1, 2, drawn, last) and not other
            products = seen.products
            right, expected = truth.gradients(weights, tokens) if compared else (0.0, [])
            seen.products = products  # products of the true gradients are not the subject's
            with trial.subject_fault():
                loss = model.loss(tokens)
                loss.backward()
                losses.append(float(loss.detach()))
            if compared:
                errors += map(relative_error, (weight.grad for weight in weights), expected)
                loss_errors.append(abs(losses[-1] - right) / max(1.0, right))
                trial.measure(gradient_errors=errors, loss_errors=loss_errors)
            del expected
            with trial.subject_fault():
                optimizer.step()
            if compared:
                torch.cuda.empty_cache()  # does nothing if CUDA was never started
            else:  # else the memory of the true gradients counts too
                memory.append(_taken(trial))
            trial.step(step, loss=losses[-1], memory_bytes=memory[-1])
    if not other:
        named = dict(zip(truth.parameters, weights, strict=True))
        trial.measure(raised_key_errors=_raised_key_errors(trial, model, truth, named))
    trial.measure(
        losses=losses,
        memory_bytes=max(memory) - used_before,
        torch_products=seen.products,
        children=[*children, *seen.children][:20],
    )
    trial.resolve(
        device=",".join(sorted({weight.device.type for weight in weights})),
        dtype=",".join(sorted({str(weight.dtype).removeprefix("torch.") for weight in weights})),
        steps=len(losses),
    )


def _raised_key_errors(
    trial: Trial[ArchivedEngine], model: TrainedModel, truth: TrueModel, weights: Mapping[str, Tensor]
) -> list[float]:
    """The relative errors of all gradients where gates are large, and the scores of one key are far above all others.

    So a softmax must subtract the maximum of all keys. The key is the first of one sequence, the last of another, and
    drawn in two. No step follows, because the smallest model learns nothing from such weights.
    """
    parameters = trial.parameters
    shape = TRUE_SHAPES[parameters["model"]]
    raise_token(weights["embedding"], weights["blocks.0.k.weight"], shape)
    raise_gates(weights["blocks.0.gate.weight"], shape)
    last = parameters["sequence"] - 1
    generator = torch.Generator().manual_seed(trial.seed + 1)
    places = torch.cat([torch.tensor([0, last]), torch.randint(last + 1, (2,), generator=generator)])
    tokens = torch.randint(1, parameters["vocabulary"], (len(places), last + 2), generator=generator)
    tokens[torch.arange(len(places)), places] = 0
    tokens = tokens.to(weights["embedding"].device)
    _, expected = truth.gradients(list(weights.values()), tokens)
    for weight in weights.values():
        weight.grad = None
    with trial.subject_fault():
        model.loss(tokens).backward()
    return [relative_error(weight.grad, right) for weight, right in zip(weights.values(), expected, strict=True)]


@torch.no_grad()
def _make_unusual(trial: Trial[ArchivedEngine], weights: Mapping[str, Tensor]) -> None:
    """Change the weights before the first step, so that more than usual values are seen.

    Half of the attention scores are so large, and half so small, that a softmax without their maximum fails. No norm's
    weight is 1.
    """
    shape = TRUE_SHAPES[trial.parameters["model"]]
    for layer in range(trial.parameters["layers"]):
        prefix = f"blocks.{layer}."
        offset_scores(
            {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}, shape
        )
    generator = torch.Generator().manual_seed(trial.seed)
    weights["norm"] *= (1.0 + 0.1 * torch.randn(shape.hidden, generator=generator)).to(weights["norm"])


def _taken(trial: Trial[ArchivedEngine]) -> int:
    """Bytes in use: of the whole device by the driver's figure, or of this process on a CPU."""
    if trial.device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        return total - free
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""F-GB10-KERNEL-ALIAS-001: the paths "liger" and "triton" launch the same kernels."""

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from falsifiers.nanochat.subject import Batch, Paths, read_back
from harness import Trial


def falsify(trial: Trial[Paths]) -> None:
    """Collect the names of the GPU kernels, or CPU operators, that a step of each path launches."""
    with trial.subject_fault():
        batch = trial.subject.batch()
        liger, triton = (_launched(trial, path, batch) for path in ("liger", "triton"))
    trial.measure(
        kernels_liger=sorted(liger),
        kernels_triton=sorted(triton),
        only_liger=sorted(liger - triton),
        only_triton=sorted(triton - liger),
    )


def _launched(trial: Trial[Paths], path: str, batch: Batch) -> set[str]:
    """Return the names of the second step, because the first one also selects and compiles kernels."""
    model, cuda = trial.subject.model(path), trial.device != "cpu"
    trial.subject.forward(model, batch).backward()
    read_back(trial, model)
    model.zero_grad()
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        trial.subject.forward(model, batch).backward()
        if cuda:
            torch.cuda.synchronize()
    kinds = {DeviceType.CUDA} if cuda else {DeviceType.CPU}
    names = {event.name for event in seen.events() if event.device_type in kinds}
    return {name[:120] for name in names if cuda or name.startswith(("aten::", "nanochat::"))}

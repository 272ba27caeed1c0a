"""F-BLACKWELL-ABLATION-001: which of the proposed fixes lets all blocks of a model be uploaded."""

from falsifiers.blackwell.measuring.device_memory import Arena, CudaMemory
from falsifiers.blackwell.oracle.qwen2 import SHAPES
from falsifiers.blackwell.root_cause import block_bytes
from falsifiers.blackwell.subjects.root_cause import Attribution, DeviceMemory, Load
from falsifiers.blackwell.watching.memory import WatchedMemory, trained_blocks
from harness import Trial
from harness.authoring.tournament import Attempt, Levels, decide


def falsify(trial: Trial[Attribution]) -> None:
    """Upload and train a model's blocks at every combination of fixes, and at doses of what may be the cause.

    An attempt fails if not all blocks have run a step. Its severity is the share of the blocks that have not. An
    attempt that holds must have put all bytes of blocks and modules on the device; one that fails, left no room.

    Each fix takes away all that it could: code that is compiled beforehand leaves no module that the driver compiles,
    products on cuBLAS leave no kernel in any layer, and a layer whose backward pass WebGPU makes has none on CUDA.
    """
    parameters = trial.parameters
    memory: DeviceMemory = Arena(parameters["arena_bytes"]) if trial.device == "cpu" else CudaMemory(trial.device)
    empty = memory.used()
    room_left: list[float] = []
    bytes_short: list[float] = []

    def attempt(levels: Levels) -> Attempt:
        size = levels["module_bytes"] * parameters["module_scale"]
        modules = parameters["kernels"] + levels["layer_kernels"] * levels["cuda_layers"]
        load = Load(parameters["model"], parameters["blocks"], levels["sequence"], modules if size else 0, size)
        memory.clear()
        watched = WatchedMemory(memory)
        with trial.subject_fault(), watched.watching():
            trial.subject.put(load, watched)
        missing = load.blocks - trained_blocks(SHAPES[load.model], watched)
        if missing:
            room_left.append(memory.free() / block_bytes(load))
        else:
            asked_for = load.blocks * block_bytes(load) + load.modules * size
            bytes_short.append(1.0 - (memory.used() - empty) / asked_for)
        return Attempt(missing > 0, missing / load.blocks)

    decide(trial, attempt)
    trial.measure(room_left=room_left, bytes_short=bytes_short)
    memory.clear()
    trial.resolve(device=memory.tensor([1]).device.type)

"""F-PD-SHARD-FLOOR-001: the sharded state of 64 devices needs at least 130 GiB on each. (It does not.)"""

from falsifiers.param_decomp.state_bytes import measured_state
from falsifiers.param_decomp.subject import Trainer
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Add components and Adam's slots, and divide them by the devices that share them."""
    state = measured_state(trial)
    gib = 2**30
    floor = (state["components"] + state["component_adam"]) / gib
    trial.measure(
        component_state_gib=floor,
        per_device_gib=floor / trial.parameters["devices"],
        gathered_gib=state["components"] / gib,
    )
    trial.resolve(device="cpu")  # tensors without data have no device; what ran is Python

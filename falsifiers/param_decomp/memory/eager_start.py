"""F-PD-JAX-EAGER-001: an eager start copies 98 GB of V and U to each of 64 devices, and an abstract one a 64th."""

from typing import Protocol

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.memory.subject import Plan
from harness import Setting, Trial


class Start(Protocol):
    """How components reach many devices; built as `Subject(setting)`."""

    def __init__(self, setting: Setting) -> None: ...

    def replicated(self) -> Plan:
        """The compiler's plan for a full copy on each device."""
        ...

    def divided(self) -> Plan:
        """The compiler's plan for a part on each device."""
        ...


def falsify(trial: Trial[Start]) -> None:
    """Compare the bytes that one device gets in either way with the arithmetic of the shapes, in float32."""
    config, devices = configuration_of(trial.parameters), trial.parameters["devices"]
    with trial.subject_fault():
        replicated, divided = trial.subject.replicated(), trial.subject.divided()
    layers = config.last_layer - config.first_layer + 1
    whole = 4 * layers * len(config.kinds) * config.components * (config.hidden + config.intermediate)
    trial.measure(
        replicated_gb=replicated.results / 1e9,
        replicated_off=abs(replicated.results / whole - 1),
        divided_off=abs(divided.results * devices / whole - 1),
        arguments_off=abs(replicated.arguments * devices / whole - 1),
        shared_bytes=[replicated.shared, divided.shared],
        peak_gib=replicated.peak / 2**30,
    )
    trial.resolve(device="cpu", dtype=replicated.dtype)  # the compiler runs on this machine; there is no B200

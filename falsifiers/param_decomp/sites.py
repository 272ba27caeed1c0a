"""F-PD-CONFIG-001: the configuration decomposes the 27 matrices of nine layers, in their canonical order."""

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.model import site_names
from falsifiers.param_decomp.subject import Trainer
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Build the trainer without data, and read its sites and their shapes from its modules and tensors."""
    config = configuration_of(trial.parameters)
    with trial.subject_fault():
        names = list(trial.subject.sites)
        components = {name: tuple(component.shape) for name, component in trial.subject.components().items()}
        frozen = trial.subject.target_weights()
        weights = {name: tuple(weight.shape) for name, weight in frozen.items()}
        dtypes = {name: str(weight.dtype).removeprefix("torch.") for name, weight in frozen.items()}
        read = int(trial.subject.batch(0).shape[1])
        sources = {name: tuple(source.shape) for name, source in trial.subject.sources().items()}
        modules = {module: name for name, module in trial.subject.target.named_modules()}
        foreign = [name for name, module in trial.subject.sites.items() if module not in modules]
    expected = site_names(config)
    size = config.components
    wrong = [f"{name}: not in the target" for name in foreign]
    for name in names:
        d_in, d_out = weights.get(name, (0, 0))
        if components.get(f"{name}.V") != (d_in, size) or components.get(f"{name}.U") != (size, d_out):
            wrong.append(f"{name}: V and U are {components.get(f'{name}.V')} and {components.get(f'{name}.U')}")
        if sources.get(name) != (1, config.sequence, size + 1):
            wrong.append(f"{name}: its source is {sources.get(name)}")
    trial.measure(
        sites=names,
        missing=[name for name in expected if name not in names],
        unexpected=[name for name in names if name not in expected],
        out_of_order=[f"{name} for {other}" for name, other in zip(names, expected, strict=False) if name != other],
        wrong_shapes=wrong,
        frozen_otherwise=[f"{name}: {dtype}" for name, dtype in dtypes.items() if dtype != "bfloat16"],
        tokens_of_a_row=read,
    )
    trial.resolve(device="cpu")  # tensors without data have no device; what ran is Python

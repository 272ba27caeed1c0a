"""Contracts: loading and refusing them (`loader`), and the clauses that judge an observation (`clauses`, `rules`)."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness.contract.loader import load, parse
    from harness.contract.model import DEVICE_FIELDS, Contract, ContractError, Mutant, Profile

__all__ = ["DEVICE_FIELDS", "Contract", "ContractError", "Mutant", "Profile", "load", "parse"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness.contract import loader, model  # the fork server imports modules of this package, and not these

    value = globals()[name] = getattr(loader if name in ("load", "parse") else model, name)
    return value

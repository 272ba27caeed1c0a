"""Contracts: what they may say and what is refused (`loader`), and what they are judged by (`clauses`, `rules`)."""

from harness.contract.loader import load, parse
from harness.contract.model import DEVICE_FIELDS, Contract, ContractError, Mutant, Profile

__all__ = ["DEVICE_FIELDS", "Contract", "ContractError", "Mutant", "Profile", "load", "parse"]

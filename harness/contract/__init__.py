"""Contracts: loading and refusing them (`loader`), and the clauses that judge an observation (`clauses`, `rules`)."""

from harness.contract.loader import load, parse
from harness.contract.model import DEVICE_FIELDS, Contract, ContractError, Mutant, Profile

__all__ = ["DEVICE_FIELDS", "Contract", "ContractError", "Mutant", "Profile", "load", "parse"]

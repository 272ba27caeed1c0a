"""Contracts: what they may say and what is refused (`loader`), and what they are judged by (`clauses`, `rules`)."""

from harness.contract.loader import DEVICE_FIELDS, Contract, ContractError, Mutant, Profile, load, parse

__all__ = ["DEVICE_FIELDS", "Contract", "ContractError", "Mutant", "Profile", "load", "parse"]

"""The subject we ship: a small, exact trainer of a parameter decomposition."""

from falsifiers.param_decomp.reference.trainer import Decomposition

__all__ = ["Decomposition"]

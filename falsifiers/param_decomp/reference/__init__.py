"""The subject we ship: a small, exact trainer of a parameter decomposition."""

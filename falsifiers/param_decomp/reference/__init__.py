"""The reference subject: a small, exact trainer of a parameter decomposition."""

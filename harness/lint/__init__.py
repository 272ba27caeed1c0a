"""Lint: whether a contract can be satisfied and can be refuted."""

from harness.lint.linter import Finding, Severity, lint

__all__ = ["Finding", "Severity", "lint"]

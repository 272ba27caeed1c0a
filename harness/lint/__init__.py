"""Lint: whether a contract that loads can also be refuted, and be satisfied."""

from harness.lint.linter import Finding, Severity, lint

__all__ = ["Finding", "Severity", "lint"]

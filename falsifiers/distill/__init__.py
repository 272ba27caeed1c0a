"""Falsifiers of the claims that SPEC-DISTILL-001 makes about knowledge distillation."""

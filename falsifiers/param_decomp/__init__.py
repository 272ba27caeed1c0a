"""Falsifiers of claims about parameter decomposition: goodfire-ai spd, PR #871, and its SPEC.md."""

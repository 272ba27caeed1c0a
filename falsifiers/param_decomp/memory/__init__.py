"""Falsifiers of claims about the memory of a decomposition's step: what is predicted, and what is measured."""

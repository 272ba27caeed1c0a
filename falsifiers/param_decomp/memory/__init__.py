"""Falsifiers of claims about the memory of a decomposition's step: predicted and measured."""

"""Falsifiers of the APR v2 file format."""

"""The reference implementation of APR v2: a writer and a reader for the layout of aprender-core's format/v2."""

from falsifiers.apr.reference.format import Reference

__all__ = ["Reference"]

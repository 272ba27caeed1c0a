"""The APR v2 implementation we ship: a writer and a reader, to the table of aprender-core's format/v2."""

from falsifiers.apr.reference.format import Reference

__all__ = ["Reference"]

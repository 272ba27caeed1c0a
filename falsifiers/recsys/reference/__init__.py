"""The reference subjects."""

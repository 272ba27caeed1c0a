"""Formats that CI services read."""

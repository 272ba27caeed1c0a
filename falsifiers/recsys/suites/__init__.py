"""Tests as a team would write them; claims are about what of them runs."""

"""Tests as a team would write them; claims are about which of them run."""

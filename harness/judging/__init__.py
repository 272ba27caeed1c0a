"""Judging: pure functions of contracts and observations, without I/O, torch or a clock."""

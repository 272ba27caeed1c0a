"""Subjects with one known defect each."""

"""Subjects with one known defect each; each replays a bug from a real project, or one like it."""

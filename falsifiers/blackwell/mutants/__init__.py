"""Subjects with one known defect each; every one replays a bug that somebody had or might have."""

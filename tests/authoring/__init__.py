"""Tests of the toolkit for falsifier authors."""

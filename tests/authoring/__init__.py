"""Tests of what falsifier authors share."""

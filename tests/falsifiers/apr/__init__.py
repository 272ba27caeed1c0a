"""Tests of the adversaries of APR v2."""

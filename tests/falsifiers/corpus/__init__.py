"""Tests of the claims about APR v2."""

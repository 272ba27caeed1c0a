"""Mutation testing of the harness core: do its own tests notice a defect in loading, judging and sealing?

`harness plant` tests falsifiers. This package tests the tests, with a tool of others: Cosmic Ray.
"""

"""`harness merge`: the evidence of several hosts or archives in one folder."""

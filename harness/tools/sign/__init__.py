"""`harness attest` and `harness keygen`: signatures of sealed bundles."""

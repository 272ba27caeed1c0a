"""`harness figures`: whether numbers and quotes of contracts are those of the documents that they name."""

"""The lowest package: strict JSON, schemas, masking of secrets, safe paths, and the enums of results."""

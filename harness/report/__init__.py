"""Reports: the same records for people, for CI, and for machines; one writer a format."""

"""Reports of records for people, CI and programs, with one writer for each format."""

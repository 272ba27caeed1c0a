"""The adversaries: for every spec a folder, for every claim a module that does real work and records measurements."""

"""F-BLACKWELL-ARCHIVE-001: machine code that an engine ships, of our engine or of an external one."""

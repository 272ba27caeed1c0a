"""F-BLACKWELL-PTX-001: the code that an engine, started by a command, loads into the CUDA driver."""

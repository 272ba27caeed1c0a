"""F-BLACKWELL-PTX-001: what the CUDA driver is handed by any engine that a command starts."""

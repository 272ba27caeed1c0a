"""The claims of SPEC-BLACKWELL-FIX-001 on any engine that a command starts, seen at the CUDA driver."""

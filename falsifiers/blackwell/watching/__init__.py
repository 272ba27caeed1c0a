"""Observers of a subject while it works: compilers, kernel caches, memory, child processes, wgpu."""

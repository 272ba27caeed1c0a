"""Subjects in a process of their own, which `harness run --isolate` asks for."""

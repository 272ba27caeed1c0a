"""The hardware, software and telemetry of this machine. Only this package queries NVML, /proc and git."""

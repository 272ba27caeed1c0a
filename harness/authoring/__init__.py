"""The library of falsifier authors. A module with optional dependencies names the extra that installs them."""

"""The code for NVIDIA GPUs in any file: which kernels, for which target, and whether the driver must compile it first.

    from harness.inspect.device_code import inspect

    for code in inspect(Path("libengine.so")).codes:
        code.form, code.sm, code.kernels

Found are ELF images with machine code, fatbin images with their entries, and PTX, wherever in an executable, library
or archive they lie; no file name is believed. Entries that nvcc compressed are read where they are LZ4 or Zstandard
(the latter needs the extra `device-code`); an entry that cannot be decoded is listed with what its header says and the
reason. A program that writes its PTX when it runs holds none, but pieces of text for it: that is told too.

A file may come from a stranger: nothing in it runs, no offset is followed past its end, and nothing is decompressed to
more than its header says, or than 64 MiB.
"""

from harness.inspect.device_code.inspection import DeviceCode, Form, Inspection, inspect, scan

__all__ = ["DeviceCode", "Form", "Inspection", "inspect", "scan"]

"""Finds the code for NVIDIA GPUs in any file: kernels, targets, and whether the driver must compile it first.

    from harness.tools.inspect.device_code import inspect

    for code in inspect(Path("libengine.so")).codes:
        code.form, code.sm, code.kernels

`inspect` finds three kinds of code anywhere in an executable, library or archive, whatever the name of the file:

- ELF images with machine code;
- fatbin images with their entries. Entries compressed with LZ4 or Zstandard are read; Zstandard needs the extra
  `device-code`. An entry that cannot be decoded is listed with its header's fields and the reason;
- PTX. A program that writes PTX when it runs contains only pieces of it; these are reported as signs.

Files may be hostile. Nothing in them runs, no offset is followed past their end, and no entry is decompressed to more
than its header states, or to more than 64 MiB.
"""

from harness.tools.inspect.device_code.images import DeviceCode, Form, Inspection, inspect, scan

__all__ = ["DeviceCode", "Form", "Inspection", "inspect", "scan"]

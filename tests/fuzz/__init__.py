"""Fuzz targets: one file for each format of untrusted files.

Each has one property: any bytes give a result or the documented error, within the bounds of `limits.py`. The bytes are
noise, healthy files with damage (`damage.py`), and the hostile cases of corpus/. `make test` draws a hundred cases for
each property. `make fuzz` draws them for hours.
"""

"""Thin, typed ctypes binding of cuDNN's C API, one file a layer, for 8.x and 9.x.

Enumeration values are the numbers of the headers shipped with cuDNN 8.9.7 and 9.19.0, which agree
on all of those used here except the status codes (see `status`).
"""

"""The one package that imports PySyncObj."""

import _socket
import socket

import pysyncobj  # noqa: F401  (before the line below, which mends what it does)

socket.inet_ntop = _socket.inet_ntop
"""
The library's import replaces it, for the whole process, by one that works on Windows only. Taken back here, before any
module of this package runs: taken back by one of them, it stays broken for a process that imports another.
"""

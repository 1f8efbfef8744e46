"""
Rollcall: a high-availability control plane for replicated logs.

The folders of the repository's top (``controller``, ``broker``, ``ha`` ...) are the sub-packages of this one: relative
links in a checkout, real folders in the wheel. No name of ours is a top-level one, so that none can shadow a user's.
"""

__version__ = "0.2.0"
VERSION_LINE = f"rollcall {__version__}"

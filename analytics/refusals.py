"""Why a job cannot begin: the one family of errors that ``cli`` turns into a line on stderr and exit code 2."""

from __future__ import annotations


class JobRefused(Exception):
    """The job cannot begin, or cannot go on. The message says why and what to do; nothing was half published."""

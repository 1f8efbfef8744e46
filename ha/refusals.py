"""
Links that are refused for lack of a good certificate: their reasons, and the lines for the operator.

Here: words and their rate. Not here: the judgement (``node.remoting.secured.ExpectedPeer``), the counters
(``node.remoting.links``).

Rule: nobody can fill the log: one line in ``TELL_MS``, with the number of those that were left out.
"""

from __future__ import annotations

import ssl

import structlog

TELL_MS = 10_000
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""What OpenSSL calls first bytes that are no hello."""

_log = structlog.get_logger("ha")


def tls_reason(error: ssl.SSLError) -> str:
    """What is wrong, for the most part in the words of OpenSSL."""
    if error.reason in _NO_TLS:
        return "TLS: plain bytes, or another protocol"
    text = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason
    return f"TLS: {text or error}"


class LinkRefusals:
    """The log lines of one end of a process's links."""

    def __init__(self) -> None:
        self._silent_until_ms: int | None = None
        self._left_out = 0

    def tell(self, event: str, now_ms: int, **values: object) -> None:
        """A warning, unless the last one was told a moment ago."""
        if self._silent_until_ms is not None and now_ms < self._silent_until_ms:
            self._left_out += 1
            return
        _log.warning(event, **values, left_out=self._left_out)
        self._silent_until_ms, self._left_out = now_ms + TELL_MS, 0

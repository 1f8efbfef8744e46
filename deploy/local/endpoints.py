"""
Where to ask a process by HTTP, and whether through TLS.

Here: one address with what its questions need. Not here: the controllers' typed client (``client.client``), which nodes
there are (``fleet``).
"""

from __future__ import annotations

import http.client
import ssl

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.config import split_address

HTTP_TIMEOUT_S = 1.0


class Endpoint(Frozen):
    """A port of one process."""

    address: str
    """host:port."""
    context: ssl.SSLContext | None = None
    """Whom to trust and what to show; None: the port is plain."""

    def __str__(self) -> str:
        """The address alone."""
        return self.address

    def url(self, path: str) -> str:
        """Of ``path`` there."""
        return f"{'http' if self.context is None else 'https'}://{self.address}{path}"

    def connection(self, *, timeout_s: float = HTTP_TIMEOUT_S) -> http.client.HTTPConnection:
        """A new one; nothing is dialled yet. Close it."""
        host, port = split_address(self.address)
        if self.context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.context)

    def is_ok(self, path: str) -> bool:
        """Whether ``GET path`` is answered with 200."""
        connection = self.connection()
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

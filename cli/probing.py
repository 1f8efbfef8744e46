"""
A look at one port from outside: whether anybody listens, and whose certificate is shown.

Here: dialling and a handshake, each within ``DIAL_S_MAX``; no request is sent. Not here: which ports there are
(``doctor``), what a fault means (``diagnosis``).

Rule: a port is who its certificate says. That something listens there proves nothing: it may be another program.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from enum import StrEnum

from rollcall_ha.client.identity import Identity, IdentityError
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.authority import AuthorityError, ShownCertificate, read_shown

DIAL_S_MAX = 2.0
DIALS_AT_ONCE_MAX = 32
_EXPIRED = 10
_STRANGERS = frozenset({7, 18, 19, 20})
"""Codes of OpenSSL: the signature, or the authority behind it, is not one that we know."""


class PortState(StrEnum):
    """What a port is, from outside."""

    OPEN = "open"
    """It shows a certificate of our authority; of an insecure fleet: it takes connections."""
    REFUSED = "refused"
    """Nobody listens."""
    SILENT = "silent"
    """No answer in time: the machine is down, or something on the way drops what is sent."""
    UNREACHABLE = "unreachable"
    """There is no way to it, or its name has no address."""
    NOT_OURS = "not-ours"
    """Somebody listens, and it is no port of a fleet with certificates: it speaks no TLS."""
    EXPIRED = "expired"
    WRONG_AUTHORITY = "wrong-authority"
    UNPROVEN = "unproven"
    """The certificate does not hold for another reason."""


class Port(Frozen):
    """One port that others are told of."""

    node: str
    kind: str
    """As the fleet file calls it: raft, broker, rest, listen, ha, health."""
    host: str
    number: int
    expected: str = ""
    """The URI name that its certificate must have; empty: not known."""
    is_tls: bool = True

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.number}" if ":" in self.host else f"{self.host}:{self.number}"


class Looked(Frozen):
    """What was found at a port."""

    port: Port
    state: PortState
    trouble: str = ""
    """In words of the system or of TLS."""
    shown: ShownCertificate | None = None
    """None: it showed none, or it cannot be read."""

    @property
    def name(self) -> str:
        """The URI name of the certificate, else its common name, else nothing."""
        return "" if self.shown is None else str(self.shown.name or self.shown.subject)


def look_at(ports: Sequence[Port], identity: Identity) -> tuple[Looked, ...]:
    """Look at all of them, ``DIALS_AT_ONCE_MAX`` at once. Raises ``IdentityError``: the authority cannot be read."""
    if not ports:
        return ()
    context = _context(identity)
    with ThreadPoolExecutor(max_workers=min(DIALS_AT_ONCE_MAX, len(ports))) as pool:
        return tuple(pool.map(lambda port: look(port, context), ports))


def _context(identity: Identity) -> ssl.SSLContext | None:
    if identity.authority is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The URI name is compared by the caller: hosts of broker ports are in no certificate.
    context.check_hostname = False
    try:
        context.load_verify_locations(identity.authority)
    except OSError as error:
        raise IdentityError(f"{identity.authority} cannot be used: {error}; name ca.pem by --authority") from error
    return context


def look(port: Port, context: ssl.SSLContext | None) -> Looked:
    """Blocks for a few ``DIAL_S_MAX`` at most. ``context`` None: no authority is known, so no certificate is judged."""
    try:
        link = socket.create_connection((port.host, port.number), timeout=DIAL_S_MAX)
    except TimeoutError:
        return Looked(port=port, state=PortState.SILENT, trouble=f"no answer within {DIAL_S_MAX:g} s")
    except ConnectionRefusedError:
        return Looked(port=port, state=PortState.REFUSED, trouble="connection refused")
    except OSError as error:
        return Looked(port=port, state=PortState.UNREACHABLE, trouble=error.strerror or str(error))
    with closing(link):
        if not port.is_tls or context is None:
            return Looked(port=port, state=PortState.OPEN)
        try:
            with context.wrap_socket(link) as secured:
                return Looked(port=port, state=PortState.OPEN, shown=_read(secured))
        except ssl.SSLCertVerificationError as error:
            state = PortState.WRONG_AUTHORITY if error.verify_code in _STRANGERS else PortState.UNPROVEN
            state = PortState.EXPIRED if error.verify_code == _EXPIRED else state
            return Looked(port=port, state=state, trouble=error.verify_message, shown=_unproven(port))
        except TimeoutError:
            trouble = f"it takes connections, and no TLS handshake ended within {DIAL_S_MAX:g} s"
            return Looked(port=port, state=PortState.NOT_OURS, trouble=trouble)
        except OSError as error:
            trouble = getattr(error, "reason", None) or error.strerror or str(error)
            return Looked(port=port, state=PortState.NOT_OURS, trouble=f"no TLS: {trouble}")


def _unproven(port: Port) -> ShownCertificate | None:
    """The certificate of a port that is not believed; nothing is sent to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # whose it is shall be told, and nothing else is done with it
    try:
        link = socket.create_connection((port.host, port.number), timeout=DIAL_S_MAX)
        with closing(link), context.wrap_socket(link) as secured:
            return _read(secured)
    except OSError:
        return None


def _read(secured: ssl.SSLSocket) -> ShownCertificate | None:
    der = secured.getpeercert(binary_form=True)
    try:
        return None if der is None else read_shown(der)
    except AuthorityError:
        return None

"""
Who asked: the proven caller of an order, as the record keeps it.

Here: roles, ways to prove oneself, the caller itself. Not here: certificates (``node.certified``), tokens
(``controller.core.tokens``), what a role may do (``api.rest.roles``).
"""

from __future__ import annotations

from enum import StrEnum

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import Value


class Role(StrEnum):
    """What a caller may do. Viewer, operator and admin include each other in this order; broker stands beside them."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    BROKER = "broker"
    """Speaks for the replicas of its own set."""


class ProvedBy(StrEnum):
    """How the caller proved who it is."""

    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 (a word of the vocabulary)
    SIGNATURE = "signature"
    """RocketMQ's: access key and HMAC."""
    NOTHING = "nothing"
    """An insecure fleet, or a RocketMQ port that is open: whoever connects."""


class Principal(Value):
    """A caller, as proven by the controller that took the request; its word goes along with what it forwards."""

    name: str
    """``alice``; of a broker its name in the fleet file, ``broker-a-1``."""
    role: Role
    proved_by: ProvedBy
    serial: str = ""
    """A certificate's serial number in hex, a token's id, the access key of a signature."""
    address: str = ""
    """host:port of the caller's end of the link."""
    set_key: SetKey | None = None
    """The only set that a broker may speak for; None for everybody else."""

    def __str__(self) -> str:
        """``admin:alice``, as ``requested_by`` of the record."""
        return f"{self.role}:{self.name}"

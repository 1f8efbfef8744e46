"""
Certificates that are believed no longer.

Here: ``decide_revoke_certificate``. Not here: what a revoked caller is refused (``callers``), closing its links (each
port), certificates (``node.certified``).

Rule 1: at most ``REVOKED_MAX`` are kept. An entry makes room when its certificate has been expired for
``EXPIRED_KEPT_MS``, by the leader's clock; no port takes it any more, on whatever clock within that.
Rule 2: without such room a revocation is refused: forgotten, a certificate that is good for years would be believed
again.
"""

from __future__ import annotations

import re

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation, RevokeCertificate
from rollcall_ha.controller.contract.events import CertificateRevoked
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.state import REVOKED_MAX, FleetState

EXPIRED_KEPT_MS = 7 * 86_400_000
"""A week: more than clocks of one fleet differ by."""
TIME_MS_MAX = 2**53
"""A JSON reader keeps every integer up to here."""

_SERIAL = re.compile(r"[1-9a-f][0-9a-f]{0,39}", re.ASCII)


def decide_revoke_certificate(fleet: FleetState, operation: Operation, command: RevokeCertificate) -> Decision:
    """Revoke one certificate by its serial number."""
    # As certificates are compared: "0A" in the list, and "a" on the link, would be two.
    if _SERIAL.fullmatch(command.serial) is None or not 0 <= command.expires_at_ms <= TIME_MS_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"serial number {command.serial[:60]!r} or time of expiry {command.expires_at_ms} cannot be that of a "
            "certificate",
            "take both from the certificate, see: rollcall certs list",
        )
    if command.serial in fleet.revoked:
        return done()
    forgotten: tuple[str, ...] = ()
    if len(fleet.revoked) >= REVOKED_MAX:
        before_ms = operation.stamped_at_ms - EXPIRED_KEPT_MS
        forgotten = tuple(sorted(one.serial for one in fleet.revoked.values() if one.expires_at_ms < before_ms))
        if not forgotten:
            raise Refusal(
                RefusalCode.INVALID_REQUEST,
                f"{len(fleet.revoked)} certificates are revoked, none of which has expired; at most {REVOKED_MAX} are "
                "kept",
                "let a new authority take over and distrust the old one: its certificates need no revocation then",
                requested=len(fleet.revoked) + 1,
                current=REVOKED_MAX,
            )
    return done(made_from(command, CertificateRevoked, forgotten=forgotten))

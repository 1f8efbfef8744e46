"""
When a slave opens its link anew, so that both ends show certificates that are not about to expire.

Here: the decision, by two clocks. Not here: dialling, the moment at which the new link takes over (``service``).

Rule 1: our renewed certificate is shown soon, because only a new link shows it.
Rule 2: a master cannot say that it has renewed its own: the slave looks whenever half of what was left is over.
Rule 3: one attempt in ``PAUSE_MS``, whatever comes of it.
"""

from __future__ import annotations

from rollcall_ha.ha.channels import Channel
from rollcall_ha.node.tls import Credentials

PAUSE_MS = 10_000


class RenewalClock:
    """Says when a slave's link is due; the times are milliseconds of the links' clock."""

    def __init__(self, credentials: Credentials) -> None:
        """Nothing is due before ``opened``."""
        self._credentials = credentials
        self._looked_at_ms = 0
        self._tried_at_ms: int | None = None

    def opened(self, now_ms: int) -> None:
        """A link was opened: both ends have just shown what they have."""
        self._looked_at_ms = now_ms

    def is_due(self, channel: Channel, now_ms: int, wall_ms: int) -> bool:
        """Whether to look what both ends show now."""
        if channel.certificate is None:
            return False
        if self._tried_at_ms is not None and now_ms - self._tried_at_ms < PAUSE_MS:
            return False
        is_renewed = channel.shown != self._credentials.own.serial
        return is_renewed or channel.certificate.is_half_over(now_ms - self._looked_at_ms, wall_ms)

    def tried(self, now_ms: int) -> None:
        """An attempt begins (rule 3)."""
        self._tried_at_ms = self._looked_at_ms = now_ms

    @staticmethod
    def is_newer(channel: Channel, old: Channel) -> bool:
        """Whether a link over ``channel`` shows anything that the old one does not."""
        if channel.certificate is None or old.certificate is None:
            return False
        return channel.shown != old.shown or channel.certificate.serial != old.certificate.serial

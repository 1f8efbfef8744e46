"""
The certificates that a process shows and sees, with their ends, for metrics and status pages.

Here: which ones count, and their metrics. Not here: renewal (``tls``, ``credentials``), warnings for people
(``cli.tables``).

Rule: each name is listed once, with the certificate that ends last: a link that shows an older one is about to go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.tls import Credentials

PEERS_LISTED_MAX = 100
"""The most certificates of peers that are listed: those that end first."""


class CertificatesHeld:
    """Own certificate and those of peers, at the moment of asking."""

    def __init__(
        self,
        credentials: Credentials | None,
        *,
        is_insecure: bool,
        peers: Callable[[], Iterable[PeerCertificate | None]] = lambda: (),
    ) -> None:
        """``peers``: those of open links; called on the thread that asks."""
        self._credentials = credentials
        self._peers = peers
        self.is_insecure = is_insecure

    @property
    def complaint(self) -> str:
        """Why the files on the disk are not those in use; empty = they are."""
        return "" if self._credentials is None else self._credentials.complaint

    @property
    def renewals(self) -> int:
        """How often renewed files were taken."""
        return 0 if self._credentials is None else self._credentials.renewals

    def certificates(self) -> tuple[PeerCertificate, ...]:
        """Our own first, then those of peers that end first."""
        newest: dict[str, PeerCertificate] = {}
        for one in self._peers():
            if one is not None:
                known = newest.setdefault(str(one.name), one)
                newest[str(one.name)] = max(known, one, key=lambda each: each.expires_at_ms)
        soonest = sorted(newest.values(), key=lambda one: (one.expires_at_ms, one.serial))[:PEERS_LISTED_MAX]
        return (*(() if self._credentials is None else (self._credentials.own,)), *soonest)


class CertificateCollector(Collector):
    """The metrics of ``CertificatesHeld``, read at each scrape."""

    def __init__(self, held: CertificatesHeld) -> None:
        """Register it with the registry of the process."""
        self._held = held

    def collect(self) -> Iterable[Metric]:
        ends = GaugeMetricFamily(
            "rollcall_certificate_expires_timestamp_seconds",
            "When a certificate in use expires: our own, and of a controller those of its peers.",
            labels=["name", "kind"],
        )
        for one in self._held.certificates():
            ends.add_metric([one.name.name, one.name.kind.value], one.expires_at_ms / 1000)
        yield ends
        yield CounterMetricFamily(
            "rollcall_certificate_renewals", "Renewed files that were taken.", value=self._held.renewals
        )
        yield GaugeMetricFamily(
            "rollcall_certificate_files_refused",
            "1 if the files on the disk are not those in use, because they cannot be used.",
            value=float(bool(self._held.complaint)),
        )
        yield GaugeMetricFamily(
            "rollcall_insecure",
            "1 if the fleet file says so: ports are plain, and believe whoever connects.",
            value=float(self._held.is_insecure),
        )

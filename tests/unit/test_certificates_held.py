"""What a process says of the certificates that it holds: in metrics, on status pages, in its log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from rollcall_ha.cli.tables import ControllerRow, certificates_ending, judge, status_report
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.views import (
    CertificateStatus,
    ControllerRole,
    ControllerStatus,
    FleetStatus,
    Freshness,
)
from rollcall_ha.node import renewal
from rollcall_ha.node.certificates_held import PEERS_LISTED_MAX, CertificateCollector, CertificatesHeld
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind
from rollcall_ha.node.renewal import watch_files
from tests.support.fleet_certs import FleetCertificates

DAY_MS = 86_400_000


def broker(number: int, expires_at_ms: int, serial: str = "a") -> PeerCertificate:
    name = CertifiedName(fleet="demo", kind=PeerKind.BROKER, name=f"broker-a-{number}", set_key="demo/broker-a")
    return PeerCertificate(name=name, serial=serial, expires_at_ms=expires_at_ms)


def test_each_name_is_listed_once_with_its_newest_certificate(tmp_path: Path) -> None:
    """A link that still shows the old one would have a renewed broker warned of for 14 days."""
    own = FleetCertificates(tmp_path).credentials()
    links = [broker(1, 5), None, broker(2, 3), broker(1, 9, "b"), broker(1, 7)]
    held = CertificatesHeld(own, is_insecure=False, peers=lambda: links)

    assert held.certificates() == (own.own, broker(2, 3), broker(1, 9, "b"))
    many = CertificatesHeld(own, is_insecure=False, peers=lambda: [broker(number, number) for number in range(1_000)])
    assert len(many.certificates()) == 1 + PEERS_LISTED_MAX
    assert CertificatesHeld(None, is_insecure=True).certificates() == ()


def test_metrics_say_when_renewed_and_refused(tmp_path: Path) -> None:
    """An alarm needs the end, the count, and whether the files on the disk are good."""
    certificates = FleetCertificates(tmp_path)
    own = certificates.credentials()
    registry = CollectorRegistry()
    registry.register(CertificateCollector(CertificatesHeld(own, is_insecure=False)))

    def lines() -> dict[str, float]:
        text = generate_latest(registry).decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in text if line[0] != "#")}

    end = 'rollcall_certificate_expires_timestamp_seconds{kind="controller",name="c1"}'
    assert lines()[end] == own.own.expires_at_ms / 1000
    assert (lines()["rollcall_certificate_renewals_total"], lines()["rollcall_insecure"]) == (0, 0)
    certificates.issue(PeerKind.CONTROLLER, "c1", days=30)
    assert own.renew_if_changed()
    assert (lines()["rollcall_certificate_renewals_total"], lines()[end]) == (1, own.own.expires_at_ms / 1000)
    (tmp_path / "c1.key").write_text("no key")
    assert not own.renew_if_changed()
    assert lines()["rollcall_certificate_files_refused"] == 1


def status_of(
    name: str, *certificates: CertificateStatus, complaint: str = "", is_insecure: bool = False
) -> ControllerRow:
    status = ControllerStatus(
        name=ControllerName(name), role=ControllerRole.LEADER, has_authority=True, leader=ControllerName(name), term=1,
        commit_index=1, applied_index=1, rest_address="", broker_address="", raft_address="", feature_level=3,
        fleet_incarnation=None, certificates=certificates, certificate_complaint=complaint, is_insecure=is_insecure,
        fleet_level=3,
    )  # fmt: skip
    return ControllerRow(address=name, status=status)


def ends_in(days: float, name: str) -> CertificateStatus:
    return CertificateStatus(
        name=f"rollcall://demo/controller/{name}", serial=name, expires_at_ms=int(days * DAY_MS) + 40 * DAY_MS,
        expires_in_ms=int(days * DAY_MS),
    )  # fmt: skip


def page(rows: Sequence[ControllerRow]) -> FleetStatus:
    assert rows[0].status is not None
    fresh = Freshness(read_from=ControllerName("c1"), term=1, index=1, age_ms=0, is_authoritative=True, is_stale=False)
    return FleetStatus(
        freshness=fresh, controller=rows[0].status, fleet_name="demo", timing="normal", sets=(), sets_total=0,
        next_after=None,
    )  # fmt: skip


def test_status_is_degraded_by_a_certificate_that_ends_within_14_days() -> None:
    """Whichever controller knows of it; the soonest is the verdict, each has a line with the command."""
    rows = [status_of("c1", ends_in(15, "c1"), ends_in(13.5, "broker-a-1")), status_of("c2", ends_in(-1, "c2"))]
    judged = judge(page(rows), rows)

    assert judged.is_degraded
    assert judged.verdict.startswith("DEGRADED  certificate of c2 has expired")
    assert judged.verdict.endswith("renew it: rollcall certs renew c2 (and 1 certificate more)")
    lines = [part for part in status_report(page(rows), rows).parts if isinstance(part, str)]
    assert sum(line.startswith("WARNING  certificate of") for line in lines) == 2
    assert any("broker-a-1 expires in 13.5 days" in line for line in lines)
    assert certificates_ending([status_of("c1", ends_in(14.1, "c1"))]) == []


def test_status_names_files_that_are_refused_and_an_insecure_fleet() -> None:
    """A renewal that was copied to the wrong machine is found before the old certificate ends."""
    rows = [status_of("c1", complaint="c1.pem: is of c2", is_insecure=True)]

    assert certificates_ending(rows) == ["c1 goes on with its old certificate: c1.pem: is of c2"]
    assert judge(page(rows), rows).is_degraded
    assert any(str(part).startswith("INSECURE") for part in status_report(page(rows), rows).parts)


def test_a_process_warns_once_a_day_of_its_own_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second would be 86,400 lines a day, and once in its life would be forgotten."""
    monkeypatch.setattr(renewal, "LOOK_INTERVAL_MS", 1)
    certificates = FleetCertificates(tmp_path)
    own = certificates.credentials()
    days = iter([0.0] * 3 + [77.5] * 3 + [78.5] * 3)
    start_ms = own.own.expires_at_ms - 90 * DAY_MS
    start_ms -= start_ms % DAY_MS
    is_over = asyncio.Event()

    def wall_ms() -> int:
        day = next(days, None)
        if day is None:
            is_over.set()
        return start_ms + int((79 if day is None else day) * DAY_MS)

    async def run() -> None:
        task = asyncio.create_task(watch_files(own, wall_ms=wall_ms))
        async with asyncio.timeout(20):
            await is_over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with structlog.testing.capture_logs() as logs:
        asyncio.run(run())
    warned = [line for line in logs if line["event"] == "certificate_expires"]
    assert [line["remedy"] for line in warned] == ["rollcall certs renew c1"] * len(warned)
    assert len(warned) in (2, 3), "the last day may begin before the test ends"

"""
A broker's ports under a flood, on a real process: memory stays bounded, and every closed link is counted by its cause.

Before there was one server for all ports, 60 unfinished frames took a broker from 53 to 954 MiB, and each idle link cost
256 KiB.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.config import split_address
from tests.support.descriptors import many_descriptors
from tests.support.fleet_links import listen_socket
from tests.support.fleet_story import plain

pytestmark = pytest.mark.cluster

MIB = 1024 * 1024
# At rest a broker has 66 MiB; frames that are not whole may have 48, and idle links have most of what is left. The same flood
# took 142 to 153 MiB in four runs.
RSS_BYTES_MAX = 160 * MIB
GREEDY_LINKS = 60
FRAME_BYTES = 15 * MIB
IDLE_LINKS = 4_000
HALF_REQUESTS = 2_000
DEADLINE_S = 60
DESCRIPTORS_WANTED = IDLE_LINKS + 1_000


class Victim:
    """One broker process whose controllers are not there: it listens, and that is all that the flood needs."""

    def __init__(self, fleet: Fleet) -> None:
        self.section = fleet.file.broker("broker-a-1")
        self.health = fleet.health("broker-a-1")
        self.process = psutil.Process(fleet.start("broker-a-1"))
        fleet.wait_live(["broker-a-1"], deadline_s=DEADLINE_S)
        self.listen = split_address(self.section.listen)
        wait_until(self._is_listening, deadline_s=DEADLINE_S, what="the listen port")

    def _is_listening(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(self.listen, timeout=5):
            return True
        return False

    def rss(self) -> int:
        """Resident bytes; the test ends at once when they pass the limit: the flood could take the whole machine."""
        found: int = self.process.memory_info().rss
        assert found < RSS_BYTES_MAX, f"{found / MIB:.0f} MiB resident"
        return found

    def closed(self, port: str, cause: str) -> float:
        """Links that this port closed for ``cause``, by /metrics."""
        for line in plain(self.health, "/metrics")[1].splitlines():
            if line.startswith(f'rollcall_links_closed_total{{port="{port}",reason="{cause}"}} '):
                return float(line.rpartition(" ")[2])
        return 0.0


def send_most_of_a_frame(victim: Victim, link: socket.socket) -> None:
    """All but the last byte; the broker may close the link meanwhile."""
    body = b"x" * MIB
    with contextlib.suppress(OSError):
        link.sendall(struct.pack(">iI", FRAME_BYTES, 100))
        for _ in range(FRAME_BYTES // MIB - 1):
            link.sendall(body)
            victim.rss()


def test_a_flood_of_unfinished_frames_and_of_idle_links_does_not_take_the_memory(tmp_path: Path) -> None:
    """60 x 15 MiB unfinished, 4,000 idle links and 2,000 half requests together: each is bounded, closed and counted."""
    with (
        many_descriptors(DESCRIPTORS_WANTED),
        Fleet.create(tmp_path / "fleet", Layout(sets={"broker-a": 1})) as fleet,
        ExitStack() as links,
    ):
        victim = Victim(fleet)
        for _ in range(GREEDY_LINKS):
            link = links.enter_context(listen_socket(fleet.file, "broker-a-1", timeout_s=10))
            send_most_of_a_frame(victim, link)
        shed = victim.closed("listen", "unfinished-frames")
        victim.rss()
        for _ in range(IDLE_LINKS):
            links.enter_context(socket.create_connection(victim.listen, timeout=10))
        victim.rss()
        for _ in range(HALF_REQUESTS):
            with contextlib.suppress(ConnectionError):
                half = links.enter_context(socket.create_connection(split_address(victim.section.health), timeout=10))
                half.sendall(b"GET /metrics HT")
        wait_until(
            lambda: (
                victim.closed("listen", "slow-frame") + victim.closed("listen", "unfinished-frames") == GREEDY_LINKS
            ),
            deadline_s=DEADLINE_S,
            what="every unfinished frame to be given up",
        )
        wait_until(
            lambda: victim.closed("health", "tls") + victim.closed("health", "too-many-links") == HALF_REQUESTS,
            deadline_s=DEADLINE_S,
            what="every half request to be closed",
        )
        victim.rss()
        assert shed > 0

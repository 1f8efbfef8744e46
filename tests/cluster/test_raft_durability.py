"""
Real processes, real files: nothing acknowledged is ever missing.

Rounds are few by default; ``ROLLCALL_RAFT_ROUNDS`` asks for more.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.journal import JOURNAL_FILE_NAME
from rollcall_ha.controller.replication.raft.snapshot import SNAPSHOT_FILE_NAME
from rollcall_ha.deploy.local.processes import free_ports
from tests.support.raft_certs import make_certificates
from tests.support.raft_driver import RaftProcess, found, start_node, wait_for

pytestmark = pytest.mark.cluster

NAMES = ("c1", "c2", "c3")
ROUNDS = int(os.environ.get("ROLLCALL_RAFT_ROUNDS", "2"))
IN_FLIGHT = 16


def _free_addresses() -> dict[str, str]:
    return {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)}


class Cluster:
    """Three processes and what they ever acknowledged."""

    def __init__(self, directories: dict[str, Path], certificates: Path | None) -> None:
        self.members = _free_addresses()
        self.directories = directories
        self.certificates = certificates
        self.running: dict[str, RaftProcess] = {}
        self.ended: list[RaftProcess] = []
        found(list(directories.values()))

    def start(self, *names: str, **options: int) -> None:
        for name in names or NAMES:
            self.running[name] = start_node(
                name,
                self.members,
                self.directories[name],
                certificates=self.certificates,
                **options,
            )

    def kill(self, *names: str) -> None:
        for name in names or NAMES:
            node = self.running.pop(name)
            node.kill()
            self.ended.append(node)

    @property
    def acknowledged(self) -> list[str]:
        return [text for node in (*self.ended, *self.running.values()) for text in node.acknowledged]

    def leader(self, timeout_s: float = 15.0) -> RaftProcess:
        def leaders() -> list[RaftProcess]:
            return [node for node in self.running.values() if node.facts.get("role") == "leader"]

        wait_for(lambda: bool(leaders()), timeout_s, "a leader")
        return max(leaders(), key=lambda node: int(node.facts["term"]))

    def load(self) -> None:
        for node in self.running.values():
            node.tell(f"load {IN_FLIGHT}")

    def wait_acknowledged(self, more: int, timeout_s: float = 20.0) -> None:
        target = len(self.acknowledged) + more
        wait_for(lambda: len(self.acknowledged) >= target, timeout_s, f"{more} more acknowledged ids")

    def require_nothing_lost(self) -> None:
        """On every node, once each; states are equal."""
        promised = self.acknowledged
        assert len(set(promised)) == len(promised)

        state = self.leader().state()
        missing = set(promised) - set(state)
        assert not missing, f"{len(missing)} of {len(promised)} acknowledged ids are missing"
        assert len(set(state)) == len(state), "something was applied twice"
        for node in self.running.values():
            wait_for(lambda node=node: node.state() == state, 20.0, f"the state of {node.name}")  # type: ignore[misc]

    def require_terms_rose(self) -> None:
        """A process never reports a lower term than one before it."""
        for name in NAMES:
            terms = [term for node in (*self.ended, *self.running.values()) if node.name == name for term in node.terms]
            assert terms == sorted(terms)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster({name: tmp_path / name for name in NAMES}, tmp_path / "tls")
    make_certificates(tmp_path / "tls", NAMES)
    yield made
    for name in list(made.running):
        made.kill(name)


def test_kill_of_all_in_a_loop_loses_nothing(cluster: Cluster) -> None:
    """S56: Also while snapshots are written and the journal is cut: the stock library lost up to a third."""
    for _ in range(ROUNDS):
        cluster.start()
        cluster.leader()
        cluster.load()
        cluster.wait_acknowledged(300)
        time.sleep(random.random() * 0.1)
        cluster.kill()
        with (cluster.directories[random.choice(NAMES)] / JOURNAL_FILE_NAME).open("ab") as journal:
            journal.write(bytes(random.randrange(1, 900)))  # as a file system may leave a torn tail
    cluster.start()
    cluster.leader()
    cluster.require_nothing_lost()
    cluster.require_terms_rose()


def test_kill_of_one_after_the_other_loses_nothing(cluster: Cluster) -> None:
    """Leader or not: the others go on, the killed one comes back."""
    cluster.start()
    cluster.leader()
    cluster.load()
    for _ in range(ROUNDS):
        victim = random.choice([cluster.leader().name, *NAMES])
        cluster.wait_acknowledged(100)
        cluster.kill(victim)
        cluster.leader()
        cluster.wait_acknowledged(100)
        cluster.start(victim)
        cluster.running[victim].tell(f"load {IN_FLIGHT}")
    cluster.wait_acknowledged(100)
    _quiet(cluster)
    cluster.require_nothing_lost()


def _quiet(cluster: Cluster) -> None:
    """Nobody proposes any more: a clean stop and start of all."""
    for name in NAMES:
        node = cluster.running.pop(name)
        node.tell("stop")
        assert node.wait() == 0
        cluster.ended.append(node)
    cluster.start()
    cluster.leader()


def test_a_wiped_member_does_not_vote_before_it_has_caught_up(cluster: Cluster) -> None:
    cluster.start()
    cluster.leader()
    cluster.load()
    cluster.wait_acknowledged(300)
    wiped = next(name for name in NAMES if name != cluster.leader().name)
    cluster.kill(wiped)
    shutil.rmtree(cluster.directories[wiped])
    cluster.start(wiped)
    wait_for(lambda: cluster.running[wiped].facts.get("is_voter") is False, 10.0, "a member that knows it forgot")
    wait_for(lambda: cluster.running[wiped].facts.get("is_voter") is True, 20.0, "a member that has caught up")
    _quiet(cluster)
    cluster.require_nothing_lost()


def test_damage_is_refused_and_healed_by_starting_empty(cluster: Cluster) -> None:
    """Both kinds of files, one after the other; every kind of damage is in the unit tests."""
    cluster.start()
    cluster.leader()
    cluster.load()
    cluster.wait_acknowledged(500)
    cluster.kill()
    for file_name in (JOURNAL_FILE_NAME, SNAPSHOT_FILE_NAME):
        file = cluster.directories["c1"] / file_name
        good = file.read_bytes()
        at = len(good.rstrip(b"\x00")) // 3  # behind it is room that nothing was written to
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        cluster.start("c1")
        assert cluster.running["c1"].wait() == FailStop.DAMAGED
        assert "damaged" in cluster.running["c1"].facts["refused"]
        cluster.ended.append(cluster.running.pop("c1"))
        file.write_bytes(good)
    shutil.rmtree(cluster.directories["c1"])
    cluster.start()
    wait_for(lambda: cluster.running["c1"].facts.get("is_voter") is True, 20.0, "the member to be filled again")
    cluster.require_nothing_lost()


def test_a_full_disk_stops_one_node_and_loses_nothing(cluster: Cluster) -> None:
    """S54: The stock library dies of SIGBUS in a memory map."""
    cluster.start("c1", file_bytes_max=200_000, compaction_entries=100_000)
    cluster.start("c2", "c3")
    cluster.leader()
    cluster.load()
    assert cluster.running["c1"].wait(30.0) == FailStop.STORAGE
    cluster.ended.append(cluster.running.pop("c1"))
    cluster.leader()
    cluster.start("c1")
    cluster.wait_acknowledged(50)
    _quiet(cluster)
    cluster.require_nothing_lost()


# --- power cuts: file systems on images whose bytes are copied in the middle ---


def _mount_images(root: Path) -> dict[str, Path]:
    mounted: dict[str, Path] = {}
    for name in NAMES:
        image, folder = root / f"{name}.img", root / f"mnt-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(64 * 1024 * 1024)
            subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
        done = subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=False, capture_output=True)
        if done.returncode != 0:
            _unmount(mounted)
            pytest.skip(f"cannot mount an image: {done.stderr.decode().strip()}")
        mounted[name] = folder
    return mounted


def _unmount(mounted: dict[str, Path]) -> None:
    for folder in mounted.values():
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)


@pytest.mark.root
def test_a_power_cut_of_all_loses_nothing(tmp_path: Path) -> None:
    """S49: The images are copied in the middle of commits: what was not synced is not in the copy."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4")
    make_certificates(tmp_path / "tls", NAMES)
    mounted = _mount_images(tmp_path / "before")
    cluster = Cluster({name: folder / "raft" for name, folder in mounted.items()}, tmp_path / "tls")
    copied: dict[str, Path] = {}
    again = Cluster.__new__(Cluster)
    again.__dict__.update(cluster.__dict__, running={}, ended=[])
    try:
        cluster.start()
        cluster.leader()
        cluster.load()
        cluster.wait_acknowledged(300)
        promised = cluster.acknowledged
        (tmp_path / "after").mkdir()
        for node in cluster.running.values():
            os.kill(node.process.pid, signal.SIGSTOP)
        for name in NAMES:
            shutil.copyfile(tmp_path / "before" / f"{name}.img", tmp_path / "after" / f"{name}.img")
        cluster.kill()
        copied = _mount_images(tmp_path / "after")
        again.directories = {name: folder / "raft" for name, folder in copied.items()}
        again.start()
        missing = len(set(promised) - set(again.leader().state()))
        assert (missing, len(promised) >= 300) == (0, True)
        again.kill()
    finally:
        for one in (cluster, again):
            for name in list(one.running):
                one.kill(name)
        _unmount(copied)
        _unmount(mounted)

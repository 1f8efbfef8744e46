"""
etcd: three members, written to by its JSON gateway. Any member takes a write, and the leader decides for itself.

Patroni's cluster keeps its lock in one of these.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from rollcall_ha.deploy.local.processes import LauncherError, Processes, free_ports
from tests.perf.field import programs
from tests.perf.field.links import Link, Links, once
from tests.perf.field.system import BODY, HOST, MEMBERS, READY_S_MAX, Client, Column, Kind, Master, RefusedError

PACKAGE = "etcd-server"
TUNED_HEARTBEAT_MS, TUNED_ELECTION_MS = 30, 300
LOOK_S = 3.0


def ask(link: Link, path: str, document: dict[str, Any]) -> dict[str, Any]:
    """A POST to the gateway. Raises ``OSError``; ``RefusedError`` for another status than 200."""
    body = json.dumps(document).encode()
    link.send(b"POST %s HTTP/1.1\r\nHost: etcd\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
    status = link.line()
    length = 0
    while header := link.line():
        key, _, value = header.partition(b":")
        if key.lower() == b"content-length":
            length = int(value)
    answer = link.exactly(length)
    if status.split()[1:2] != [b"200"]:
        raise RefusedError(f"{status.decode()}: {answer.decode(errors='replace').strip()}")
    found: dict[str, Any] = json.loads(answer)
    return found


class Writing:
    """Puts to one key."""

    def __init__(self) -> None:
        """Nothing is dialled yet."""
        self._links = Links()
        self._put = {"key": base64.b64encode(b"field").decode(), "value": base64.b64encode(BODY).decode()}

    def attempt(self, address: str) -> None:
        with self._links.to(address) as link:
            ask(link, "/v3/kv/put", self._put)

    def close(self) -> None:
        self._links.close()


class Etcd:
    """Three members of etcd, as a ``System``."""

    def __init__(self, directory: Path, column: Column, processes: Processes | None = None) -> None:
        """``processes``: of the system that this one is a part of."""
        self._directory, self._column = directory, column
        self.processes = processes or Processes(directory)
        ports = free_ports(2 * MEMBERS)
        self._clients = {f"e{number}": port for number, port in enumerate(ports[:MEMBERS])}
        self._peers = dict(zip(self._clients, ports[MEMBERS:], strict=True))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._clients.values())

    def start(self) -> None:
        path = programs.program("etcd", PACKAGE)
        cluster = ",".join(f"{name}=http://{HOST}:{port}" for name, port in self._peers.items())
        tuned = ["--heartbeat-interval", str(TUNED_HEARTBEAT_MS), "--election-timeout", str(TUNED_ELECTION_MS)]
        for name, port in self._clients.items():
            client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{self._peers[name]}"
            argv = ["--name", name, "--data-dir", str(self._directory / name), "--initial-cluster", cluster]
            argv += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
            argv += ["--initial-advertise-peer-urls", peer, *(tuned if self._column is Column.TUNED else [])]
            self.processes.start(name, programs.command(path, *argv), ports=[(HOST, port), (HOST, self._peers[name])])
        programs.wait_ready(self.processes, lambda: self.leader() and self._all_follow(), what="etcd to have a leader")

    def _all_follow(self) -> bool:
        return all(status.get("leader", "0") != "0" for status in self._statuses().values())

    def _statuses(self) -> dict[str, dict[str, Any]]:
        """What each member that answers says of itself."""
        found = {}
        for name, port in self._clients.items():
            try:
                with once(f"{HOST}:{port}") as link:
                    found[name] = ask(link, "/v3/maintenance/status", {})
            except (OSError, RefusedError):
                continue
        return found

    def leader(self) -> str:
        """Name of the member that says that it leads; empty without one."""
        for name, status in self._statuses().items():
            if status.get("leader", "0") == status["header"]["member_id"]:
                return name
        return ""

    def client(self) -> Client:
        return Writing()

    def master(self) -> Master:
        name = self.leader()
        if not name:
            raise LauncherError(f"etcd has no leader after {READY_S_MAX:.0f} s at most")
        return Master(address=f"{HOST}:{self._clients[name]}", pids=(programs.pid_of(self.processes, name),))

    def decider(self) -> tuple[int, ...]:
        return self.master().pids

    def stop(self) -> None:
        programs.end(self.processes)


KIND = Kind(
    name="etcd",
    title="etcd",
    acknowledged="a majority has synced it",
    decider="the leader is the master",
    decides_itself=True,
    settings={
        Column.DEFAULT: "heartbeat-interval 100, election-timeout 1000",
        Column.TUNED: f"heartbeat-interval {TUNED_HEARTBEAT_MS}, election-timeout {TUNED_ELECTION_MS}",
    },
    obtain=lambda: programs.version(programs.program("etcd", PACKAGE)),
    make=Etcd,
    look_s=LOOK_S,
)

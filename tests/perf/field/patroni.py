"""
Patroni with PostgreSQL: three pairs of both, and an etcd of three members that holds the lock.

Here: processes, settings, an attempt in PostgreSQL's protocol by hand: libpq waits two seconds and more for a server that hangs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from rollcall_ha.deploy.local.processes import LauncherError, Processes, free_ports, python_module
from tests.perf.field import etcd, programs
from tests.perf.field.links import Link, Links, once
from tests.perf.field.system import (
    BODY,
    HOST,
    MEMBERS,
    Client,
    Column,
    Kind,
    Master,
    RefusedError,
    UnavailableError,
)

PACKAGE = "postgresql"
FOLDERS = "usr/lib/postgresql/*/bin"
USER, PASSWORD = "postgres", "field"
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
READING_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
"""Programs and Python may lie where nobody may look, as below /root."""
DCS: Mapping[Column, Mapping[str, int | bool]] = {
    Column.DEFAULT: {"ttl": 30, "loop_wait": 10, "retry_timeout": 10, "synchronous_mode": False},
    Column.TUNED: {"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "synchronous_mode": True},
}
"""A ttl below 20 is refused by Patroni."""
TABLE = "CREATE TABLE field (body text)"
INSERT = f"INSERT INTO field VALUES ('{BODY.decode()}')"
PROTOCOL = 196_608
"""Version 3.0 of PostgreSQL's protocol, in its start message."""
LOOK_S = 12.0


def postgres() -> Path:
    return programs.program("postgres", PACKAGE, FOLDERS)


def obtain() -> str:
    """Versions of all three. Raises ``UnavailableError``."""
    if programs.is_root():
        programs.require(AS_NOBODY[0])
    try:
        found = importlib.metadata.version("patroni")
        importlib.metadata.version("psycopg-binary")
    except importlib.metadata.PackageNotFoundError as error:
        raise UnavailableError(f"no {error.name} in this environment; {programs.REMEDY}") from error
    return f"{found}, PostgreSQL {programs.version(postgres())}, etcd {etcd.KIND.obtain()}"


def greet(link: Link) -> None:
    """As a client whom ``pg_hba`` trusts. Raises ``OSError``."""
    body = struct.pack(">i", PROTOCOL) + f"user\0{USER}\0database\0postgres\0\0".encode()
    link.send(struct.pack(">i", len(body) + 4) + body)
    _until_ready(link)


def query(link: Link, text: str) -> None:
    """One statement. Raises ``OSError``; ``RefusedError`` for an error after which the server takes another one."""
    body = text.encode() + b"\0"
    link.send(b"Q" + struct.pack(">i", len(body) + 4) + body)
    _until_ready(link)


def _until_ready(link: Link) -> None:
    refusal = ""
    while True:
        kind, size = struct.unpack(">ci", link.exactly(5))
        body = link.exactly(size - 4)
        if kind == b"E":
            fields = {field[:1]: field[1:].decode(errors="replace") for field in body.split(b"\0") if field}
            refusal = f"{fields.get(b'C', '')} {fields.get(b'M', '')}"
            # The server closes, and is never ready: to wait for that would be a whole attempt.
            if fields.get(b"V", fields.get(b"S")) in ("FATAL", "PANIC"):
                raise ConnectionAbortedError(refusal)
        if kind == b"Z":
            break
    if refusal:
        raise RefusedError(refusal)


class Writing:
    """INSERTs, each a transaction."""

    def __init__(self) -> None:
        """Nothing is dialled yet."""
        self._links = Links(greet)

    def attempt(self, address: str) -> None:
        with self._links.to(address) as link:
            query(link, INSERT)

    def close(self) -> None:
        self._links.close()


class Patroni:
    """Three PostgreSQL servers, each with its Patroni, and three members of etcd, as a ``System``."""

    def __init__(self, directory: Path, column: Column) -> None:
        """Nothing is started yet."""
        self._directory, self._column = directory, column
        self.processes = Processes(directory)
        self._etcd = etcd.Etcd(directory, Column.DEFAULT, self.processes)
        ports = free_ports(2 * MEMBERS)
        self._servers = {f"p{number}": port for number, port in enumerate(ports[:MEMBERS])}
        self._rests = dict(zip(self._servers, ports[MEMBERS:], strict=True))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._servers.values())

    def start(self) -> None:
        self._etcd.start()
        for name in self._servers:
            folder = self._directory / name
            folder.mkdir()
            file = folder / "patroni.yml"
            file.write_text(yaml.safe_dump(self._configuration(name)))
            argv = python_module("patroni", str(file))
            if programs.is_root():
                for path in (folder, file):
                    shutil.chown(path, "nobody", "nogroup")
                argv = [*AS_NOBODY, *READING_ALL, *argv]
            self.processes.start(name, argv, ports=[(HOST, self._servers[name]), (HOST, self._rests[name])])
            # The first one founds the cluster; the others wait for it with their copies anyway.
            if name == min(self._servers):
                programs.wait_ready(self.processes, self._leader, what="a first PostgreSQL")
        programs.wait_ready(self.processes, self._replicates, what="two replicas of PostgreSQL")
        with once(self.master().address, greet) as link:
            query(link, TABLE)

    def _configuration(self, name: str) -> dict[str, Any]:
        folder, rest = self._directory / name, f"{HOST}:{self._rests[name]}"
        return {
            "scope": "field",
            "name": name,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"hosts": list(self._etcd.addresses)},
            "bootstrap": {
                "dcs": dict(DCS[self._column]),
                "initdb": [{"auth-host": "trust"}, {"auth-local": "trust"}, {"encoding": "UTF8"}, {"locale": "C"}],
            },
            "postgresql": {
                "listen": f"{HOST}:{self._servers[name]}",
                "connect_address": f"{HOST}:{self._servers[name]}",
                "data_dir": str(folder / "data"),
                "bin_dir": str(postgres().parent),
                "pgpass": str(folder / "pgpass"),
                "authentication": {
                    "superuser": {"username": USER, "password": PASSWORD},
                    "replication": {"username": "replicator", "password": PASSWORD},
                },
                "pg_hba": [f"host all all {HOST}/32 trust", f"host replication all {HOST}/32 trust"],
                "parameters": {"unix_socket_directories": str(folder)},
            },
        }

    def _leader(self) -> str:
        """Name of the member that has the lock; empty: nobody has. Raises ``OSError`` if no Patroni answers."""
        return next((str(member["name"]) for member in self._listed() if member["role"] == "leader"), "")

    def _listed(self) -> list[dict[str, Any]]:
        """Members by the first Patroni that answers. Raises ``OSError``."""
        error: OSError = ConnectionRefusedError("no Patroni was asked")
        for name in self._rests:
            if self.processes.pid(name) is None:
                continue
            try:
                found = self._told(name, "cluster")
            except OSError as failed:
                error = failed
            else:
                return list(found.get("members", ()))
        raise error

    def _told(self, name: str, path: str) -> dict[str, Any]:
        """What one Patroni answers. Raises ``OSError``."""
        with once(f"{HOST}:{self._rests[name]}") as link:
            link.send(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
            while link.line():
                pass
            found: dict[str, Any] = json.loads(link.rest())
            return found

    def _replicates(self) -> bool:
        """By the leader's own PostgreSQL: what members say of themselves in etcd is a turn of their loops old."""
        links = self._told(self._leader() or min(self._rests), "patroni").get("replication", [])
        streaming = [link for link in links if link.get("state") == "streaming"]
        has_synchronous = any(link.get("sync_state") == "sync" for link in streaming)
        return len(streaming) == MEMBERS - 1 and (has_synchronous or not DCS[self._column]["synchronous_mode"])

    def client(self) -> Client:
        return Writing()

    def master(self) -> Master:
        """Patroni too: alone it would start its PostgreSQL again where that died."""
        name = self._leader()
        if not name:
            raise LauncherError(
                f"Patroni names no leader; the end of a log:\n{self.processes.tail(min(self._servers))}"
            )
        pids = (programs.pid_of(self.processes, name), *self._postgres_pids(name))
        return Master(address=f"{HOST}:{self._servers[name]}", pids=pids)

    def _postgres_pids(self, name: str) -> tuple[int, ...]:
        """The server of a member with all its processes; none if it does not run."""
        data = self._directory / name / "data"
        try:
            server = psutil.Process(int((data / "postmaster.pid").read_text().split("\n", 1)[0]))
            # A server stands in its data: another process that has the pid by now does not.
            if Path(server.cwd()) != data.resolve():
                return ()
            return (server.pid, *(child.pid for child in server.children(recursive=True)))
        except (OSError, ValueError, psutil.NoSuchProcess):
            return ()

    def decider(self) -> tuple[int, ...]:
        return self._etcd.decider()

    def stop(self) -> None:
        """Patroni first: it would start what ends."""
        programs.end(self.processes)
        began = time.monotonic()
        while left := [pid for name in self._servers for pid in self._postgres_pids(name)]:
            if time.monotonic() - began > programs.GONE_S_MAX:
                raise LauncherError(f"PostgreSQL's processes {left} were not gone after {programs.GONE_S_MAX:.0f} s")
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _settings(column: Column) -> str:
    return ", ".join(f"{key} {str(value).lower()}" for key, value in DCS[column].items())


KIND = Kind(
    name="patroni",
    title="Patroni",
    acknowledged="default: the master alone has it; tuned: the synchronous replica too",
    decider="Patroni of each member, by a lock in etcd, whose leader is killed",
    settings={column: _settings(column) for column in Column},
    obtain=obtain,
    make=Patroni,
    look_s=LOOK_S,
)

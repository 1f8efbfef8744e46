"""
Redis with Sentinel: three servers of which one is master, three sentinels. The master answers before a replica has a write.
"""

from __future__ import annotations

from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, Processes, free_ports
from tests.perf.field import programs
from tests.perf.field.links import Link, Links, once
from tests.perf.field.system import BODY, HOST, MEMBERS, Client, Column, Kind, Master, RefusedError

PACKAGE = "redis-server"
SET = "field"
QUORUM = 2
DOWN_AFTER_MS = {Column.DEFAULT: 30_000, Column.TUNED: 1_000}
FAILOVER_TIMEOUT_MS = {Column.DEFAULT: 180_000, Column.TUNED: 10_000}
LOOK_S = 3.0

Value = bytes | list["Value"]


def encode(*words: bytes) -> bytes:
    """A command of RESP."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def read(link: Link) -> Value:
    """An answer; one that says nothing (a null) is empty. Raises ``OSError``; ``RefusedError`` for an error."""
    line = link.line()
    kind, rest = line[:1], line[1:]
    if kind == b"-":
        raise RefusedError(rest.decode(errors="replace"))
    if kind == b"$":
        return b"" if int(rest) < 0 else link.exactly(int(rest) + 2)[:-2]
    if kind == b"*":
        return [read(link) for _ in range(max(0, int(rest)))]
    return rest


def ask(link: Link, *words: bytes) -> Value:
    """One command. Raises as ``read``."""
    link.send(encode(*words))
    return read(link)


def pairs(answer: Value) -> dict[str, str]:
    """A flat list of names and values."""
    texts = [one.decode() for one in answer if isinstance(one, bytes)] if isinstance(answer, list) else []
    return dict(zip(texts[::2], texts[1::2], strict=False))


class Writing:
    """SETs of one key."""

    def __init__(self) -> None:
        """Nothing is dialled yet."""
        self._links = Links()

    def attempt(self, address: str) -> None:
        with self._links.to(address) as link:
            ask(link, b"SET", b"field", BODY)

    def close(self) -> None:
        self._links.close()


class Sentinel:
    """Three Redis servers and three sentinels, as a ``System``."""

    def __init__(self, directory: Path, column: Column) -> None:
        """Nothing is started yet."""
        self._directory, self._column = directory, column
        self.processes = Processes(directory)
        ports = free_ports(2 * MEMBERS)
        self._servers = {f"r{number}": port for number, port in enumerate(ports[:MEMBERS])}
        self._sentinels = {f"s{number}": port for number, port in enumerate(ports[MEMBERS:])}

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._servers.values())

    def start(self) -> None:
        path = programs.program("redis-server", PACKAGE)
        first = next(iter(self._servers.values()))
        for name, port in self._servers.items():
            folder = self._directory / name
            folder.mkdir()
            argv = ["--port", str(port), "--bind", HOST, "--dir", str(folder)]
            argv += [] if port == first else ["--replicaof", HOST, str(first)]
            self.processes.start(name, programs.command(path, *argv), ports=[(HOST, port)])
        programs.wait_ready(self.processes, self._replicates, what="two replicas of Redis")
        for name, port in self._sentinels.items():
            file = self._directory / f"{name}.conf"
            file.write_text(
                f"port {port}\nbind {HOST}\ndir {self._directory}\n"
                f"sentinel monitor {SET} {HOST} {first} {QUORUM}\n"
                f"sentinel down-after-milliseconds {SET} {DOWN_AFTER_MS[self._column]}\n"
                f"sentinel failover-timeout {SET} {FAILOVER_TIMEOUT_MS[self._column]}\n"
            )
            argv = programs.command(path, str(file), "--sentinel")
            self.processes.start(name, argv, ports=[(HOST, port)])
        programs.wait_ready(self.processes, self._all_know, what="each sentinel to know the others and two replicas")

    def _replicates(self) -> bool:
        """Whether the first server has both replicas, past their first copy."""
        with once(self.addresses[0]) as link:
            told = ask(link, b"INFO", b"replication")
        return isinstance(told, bytes) and told.count(b"state=online") == MEMBERS - 1

    def _all_know(self) -> bool:
        seen = []
        for port in self._sentinels.values():
            with once(f"{HOST}:{port}") as link:
                seen.append(pairs(ask(link, b"SENTINEL", b"MASTER", SET.encode())))
        others = str(MEMBERS - 1)
        return all((one.get("num-slaves"), one.get("num-other-sentinels")) == (others, others) for one in seen)

    def client(self) -> Client:
        return Writing()

    def master(self) -> Master:
        with once(f"{HOST}:{next(iter(self._sentinels.values()))}") as link:
            told = ask(link, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", SET.encode())
        host, at = (one.decode() for one in told if isinstance(one, bytes)) if isinstance(told, list) else ("", "")
        for name, known in self._servers.items():
            if at == str(known):
                return Master(address=f"{host}:{at}", pids=(programs.pid_of(self.processes, name),))
        raise LauncherError(f"the sentinels name {told!r}, which was not started here; known: {self._servers}")

    def decider(self) -> tuple[int, ...]:
        return (programs.pid_of(self.processes, next(iter(self._sentinels))),)

    def stop(self) -> None:
        programs.end(self.processes)


def _settings(column: Column) -> str:
    return f"down-after-milliseconds {DOWN_AFTER_MS[column]}, failover-timeout {FAILOVER_TIMEOUT_MS[column]}"


KIND = Kind(
    name="redis",
    title="Redis Sentinel",
    acknowledged="the master alone has it",
    decider="sentinels choose one of them when it is time: one of three is killed",
    settings={column: _settings(column) for column in Column},
    obtain=lambda: programs.version(programs.program("redis-server", PACKAGE)),
    make=Sentinel,
    look_s=LOOK_S,
)

"""Rollcall: three controllers, one set of three brokers, TLS on every link, as ``rollcall init`` founds it."""

from __future__ import annotations

from pathlib import Path

from rollcall_ha import __version__
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.perf.field import programs, remoting
from tests.perf.field.system import READY_S_MAX, Client, Column, Kind, Master
from tests.support.fleet_links import client_credentials

PRESET = {Column.DEFAULT: "normal", Column.TUNED: "fast"}
LOOK_S = 5.0


class Rollcall:
    """Three brokers and three controllers of ours, as a ``System``."""

    def __init__(self, directory: Path, column: Column) -> None:
        """Found it; nothing is started yet."""
        self._fleet = Fleet.create(directory / "fleet", Layout(name="field", timing=PRESET[column]))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(section.listen for section in self._fleet.file.brokers.values())

    def start(self) -> None:
        self._fleet.up(deadline_s=READY_S_MAX)

    def client(self) -> Client:
        credentials = client_credentials(self._fleet.file)
        assert credentials is not None, "the fleet speaks TLS"
        return remoting.Writing(ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.BROKER})))

    def master(self) -> Master:
        name = self._fleet.master(self._fleet.set_keys()[0])
        address = self._fleet.file.broker(name).listen
        return Master(address=address, pids=(programs.pid_of(self._fleet.processes, name),))

    def decider(self) -> tuple[int, ...]:
        return (programs.pid_of(self._fleet.processes, self._fleet.leader()),)

    def stop(self) -> None:
        programs.end(self._fleet.processes)
        self._fleet.down()


KIND = Kind(
    name="rollcall",
    title="Rollcall",
    acknowledged="every replica in the SyncStateSet has it",
    decider="the leading controller",
    settings={column: f"preset `{PRESET[column]}`, TLS on every link" for column in Column},
    obtain=lambda: __version__,
    make=Rollcall,
    look_s=LOOK_S,
)

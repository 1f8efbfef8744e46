"""
Readers of slaves: who pulls from any replica, and what must hold of what a slave gives (I15).

Here: the client, the laws. Not here: where a slave's answer is looked at (``broker``), which replica gives (the product's
``broker.consuming.reads_core``).

Law 1: who gives and is not the master is a member of the set, by the newest word of the controllers that it has heard.
Law 2: what it gives is confirmed: each committed member of its epoch has it.
Law 3: no reader sees bytes that a later master does not have, unless an election said that it could lose something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch, SyncStateSet
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.sim.log import ReplicaDisk
from tests.sim.violation import Violation
from tests.sim.wire import Answer, read_answers
from tests.support.sim_kernel import MS, Counts, Process
from tests.support.sim_net import End, SimNet

_MOVES: Final = (SystemCode.SUCCESS, ClientResult.PULL_OFFSET_MOVED)


class Given(NamedTuple):
    """One record as a slave gave it."""

    offset: int
    size: int
    value: int


class SlaveReads:
    """What slaves of one set have given."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._shown: dict[int, Given] = {}
        """The record that a slave gave first at each offset."""

    def gave(
        self,
        name: str,
        end: LogOffset,
        records: Sequence[Given],
        *,
        is_member: bool,
        committed: SyncStateSet,
        disk_of: Callable[[BrokerId], ReplicaDisk],
        is_forgiven: bool,
    ) -> None:
        """
        ``end``: so far it gives, to whoever asks; ``records``: what it gives now. ``committed``: of its epoch, empty if
        there is another one; ``is_forgiven``: a later election could lose.
        """
        if not is_member:
            raise Violation(f"I15: {name} gives, and is no member of its set")
        for disk in map(disk_of, committed):
            if not disk.lost_bytes and not disk.was_replaced and disk.size() < end:
                raise Violation(f"I15: {name} gives up to {end}, {disk.name} ends at {disk.size()}")
        self._counts.add("slave reads", int(bool(records)))
        if not is_forgiven:
            self._shown.update((given.offset, given) for given in records)

    def entered(self, epoch: MasterEpoch, disk: ReplicaDisk, *, is_forgiven: bool) -> None:
        """A master begins its epoch with this log."""
        held = {record.offset: Given(record.offset, record.size, record.value) for record in disk.records()}
        begin, rotten = disk.begin(), {record.offset for record in disk.rotten}
        for offset, given in list(self._shown.items()):
            if offset < begin or offset in rotten or held.get(offset) == given:
                continue
            if not is_forgiven:
                raise Violation(f"I15: {given} was read, the master of epoch {epoch} has {held.get(offset)}")
            del self._shown[offset]


class Reader:
    """Pulls from one replica after the other, each time where the last answer left it."""

    def __init__(self, *, process: Process, net: SimNet, addresses: tuple[str, ...], pause_ms: int) -> None:
        self._process, self._net, self._addresses, self._pause_ms = process, net, addresses, pause_ms
        self._offset = 0

    def ask(self) -> None:
        """By a connection of its own, until the end of time."""
        random = self._process.kernel.random
        address = random.choice(self._addresses)

        def opened(end: End) -> None:
            read_answers(end, lambda answer: self._answered(end, answer))
            end.send(_pull(self._offset))
            self._process.after(400 * MS, "read timeout", end.close)

        host = self._net.host_of(address.partition(":")[0])
        self._net.connect(self._process, address, host, opened, lambda: None)
        self._process.after(random.randrange(1, 2 * self._pause_ms) * MS, "read", self.ask)

    def _answered(self, end: End, answer: Answer) -> None:
        end.close()
        if answer.code in _MOVES:
            self._offset = int(answer.fields["nextBeginOffset"])


def _pull(offset: int) -> bytes:
    fields = {
        "consumerGroup": "readers", "topic": "t", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return encode_frame(Frame(code=ClientCode.PULL_MESSAGE, opaque=1, ext_fields=fields))

"""
A Raft group in one thread on a virtual clock: ours, and the stock library under the same network.

Here: nodes, links in order, a clock that only the test moves. Not here: chance (a test draws, if it wants to), servers.
Rule: nothing happens by itself. ``run_for`` ticks and delivers; tests that need one message at a time use ``deliver_one``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj import syncobj as library_module
from pysyncobj.transport import Transport

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.replication.ports import ProposalOutcome
from rollcall_ha.controller.replication.raft.internals import Member
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.replication.raft.seams import Seams
from tests.support.raft_ledger import Ledger, LedgerMachine
from tests.support.raft_seams import LIBRARY_AHEAD_NS, SimulatedMember, raise_stopped
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Kernel

TIMING = PRESETS[Preset.NORMAL]
NAMES = ("c1", "c2", "c3")
STEP_MS = 5
ELECTIONS_MAX = 20


class VirtualNode(ABC):
    """What the tests ask of a node, ours or stock."""

    name: str

    @abstractmethod
    def tick(self) -> None: ...

    @abstractmethod
    def receive(self, sender: str, message: Any) -> None: ...

    @abstractmethod
    def link(self, peer: str, *, is_up: bool) -> None: ...

    @abstractmethod
    def propose(self, text: str, done: Callable[[bool | None], None]) -> None:
        """``done(True)``: said to be committed; False: said not to be; None: unknown."""

    @property
    @abstractmethod
    def library(self) -> Any:
        """The ``SyncObj``."""

    @property
    @abstractmethod
    def ids(self) -> list[str]:
        """What was applied."""

    @property
    def is_leader(self) -> bool:
        return bool(self.library._isLeader())

    @property
    def term(self) -> int:
        return int(self.library.raftCurrentTerm)

    @property
    def last_index(self) -> int:
        return int(self.library._SyncObj__raftLog[-1][1])

    @property
    def commit_index(self) -> int:
        return int(self.library.raftCommitIndex)

    def entry_at(self, index: int) -> Any:
        log = self.library._SyncObj__raftLog
        position = index - log[0][1]
        return log[position] if 0 <= position < len(log) else None


class VirtualGroup:
    """Nodes, links, time."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        make: Callable[[VirtualGroup, str], VirtualNode],
        names: Iterable[str] = NAMES,
        seed: int = 1,
        founders: Iterable[str] | None = None,
    ) -> None:
        """``founders`` None: all ``names`` are; the others are started by the test."""
        self.random = Random(seed)
        self.kernel = Kernel(seed)
        self.now_ns = 1_000_000_000
        self.library_ahead_ns = LIBRARY_AHEAD_NS
        _use_virtual_library(patch, lambda: self.now_ns + self.library_ahead_ns)
        self.names = tuple(names)
        self.queues: dict[tuple[str, str], deque[Any]] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.on_send: Callable[[str, Any], None] = lambda _source, _message: None
        self.before_delivery: Callable[[str, str, Any], None] = lambda _source, _target, _message: None
        self.after_delivery: Callable[[str, str, Any], None] = lambda _source, _target, _message: None
        self.dies_after: Callable[[str], bool] = lambda _target: False
        """Asked after each delivery whether its receiver loses power right then."""
        self.disks = {name: SimDisk(self.kernel, name) for name in self.names}
        self.founders = self.names if founders is None else tuple(founders)
        for name in self.founders:
            self.disks[name].replace(FOUNDING_FILE_NAME, b"")
        self._reader: str | None = None
        self._make = make
        self.nodes: dict[str, VirtualNode] = {}
        for name in self.founders:
            self.start(name)

    def start(self, name: str) -> VirtualNode:
        """A new life of ``name`` on its disk, connected to whoever is there and not cut off."""
        assert name not in self.nodes, f"{name} is running: a second process would write to its disk"
        node = self._make(self, name)
        self.nodes[name] = node
        for other in self.nodes:
            if other != name:
                self._connect(name, other)
        return node

    def crash(self, name: str, *, power: bool = False) -> None:
        """
        The process is gone; with ``power`` also what was not synced. What it had sent arrives, or does not.

        The process may be down already; the power of its host still takes what it had not synced.
        """
        # Gone first: its last message may kill its receiver, whose last messages would be received by the dead and might
        # kill it once more.
        if self.nodes.pop(name, None) is not None:
            for other in list(self.nodes):
                while self.random.random() < 0.9 and self.deliver_one(name, other):
                    pass
            for other in self.names:
                self._disconnect(name, other)
        if power:
            self.disks[name].lose_power()

    def wipe(self, name: str) -> None:
        """All files of a crashed node are gone."""
        assert name not in self.nodes, f"{name} is running: it would go on with the files of its old disk"
        self.disks[name] = SimDisk(self.kernel, name)

    def cut(self, one: str, *others: str) -> None:
        """No link between ``one`` and the others; all if none are named."""
        for other in others or [name for name in self.names if name != one]:
            self.cuts |= {(one, other), (other, one)}
            self._disconnect(one, other)

    def heal(self) -> None:
        """Every link again."""
        pairs, self.cuts = self.cuts, set()
        for one, other in sorted(pairs):
            if one < other:
                self._connect(one, other)

    def _connect(self, one: str, other: str) -> None:
        if one in self.nodes and other in self.nodes and (one, other) not in self.cuts:
            self.queues[one, other] = deque()
            self.queues[other, one] = deque()
            self.nodes[one].link(other, is_up=True)
            self.nodes[other].link(one, is_up=True)

    def _disconnect(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            if self.queues.pop((source, target), None) is not None and target in self.nodes:
                self.nodes[target].link(source, is_up=False)

    def send(self, source: str, target: str, message: Any) -> bool:
        """A link's queue."""
        queue = self.queues.get((source, target))
        if queue is None or self.nodes.get(source) is None:
            return False
        self.on_send(source, message)
        queue.append(message)
        return True

    def deliver_one(self, source: str, target: str) -> bool:
        """The oldest message of one direction."""
        queue = self.queues.get((source, target))
        if not queue or target not in self.nodes:
            return False
        message = queue.popleft()
        self.before_delivery(source, target, message)
        self.nodes[target].receive(source, message)
        self.after_delivery(source, target, message)
        if self.dies_after(target):
            self.crash(target, power=True)
        return True

    def deliver_all(self) -> None:
        """Everything that is under way, and what it causes, round robin."""
        while sum(self.deliver_one(source, target) for source, target in list(self.queues)):
            pass

    def run_for(self, milliseconds: int, stop: Callable[[], bool] = lambda: False) -> bool:
        """Tick and deliver; True once ``stop`` is."""
        for _ in range(milliseconds // STEP_MS):
            self.now_ns += STEP_MS * 1_000_000
            for name in list(self.nodes):
                if name in self.nodes:
                    self.nodes[name].tick()
                self.deliver_all()
            if stop():
                return True
        return False

    def run_slowly(self, steps: int) -> None:
        """As ``run_for``, but one message per direction and step: what a leader sends at once arrives over many ticks."""
        for _ in range(steps):
            self.now_ns += STEP_MS * 1_000_000
            for name in list(self.nodes):
                if name in self.nodes:
                    self.nodes[name].tick()
            for source, target in list(self.queues):
                self.deliver_one(source, target)

    def run_late(
        self, milliseconds: int, late_ms: Callable[[str], int], look: Callable[[], None] = lambda: None
    ) -> None:
        """
        As on machines without CPU: a node turns ``late_ms(name)`` after its last turn, and reads nothing between.

        ``look`` is called before each turn.
        """
        until_ns = self.now_ns + milliseconds * 1_000_000
        turns_ns = {name: self.now_ns + late_ms(name) * 1_000_000 for name in self.nodes}
        while (at_ns := min(turns_ns.values())) <= until_ns:
            name = next(name for name, due_ns in turns_ns.items() if due_ns == at_ns)
            self.now_ns = max(self.now_ns, at_ns)
            look()
            self._reader = name
            self.nodes[name].tick()
            self._reader = None
            turns_ns[name] = self.now_ns + late_ms(name) * 1_000_000
        self.now_ns = until_ns

    def poll(self, name: str) -> None:
        """The end of a node's turn, and whenever it asks: in ``run_late`` it reads what waits on its links."""
        if self._reader == name:
            for other in self.names:
                while self.deliver_one(other, name):
                    pass

    def ours(self, name: str) -> OurNode:
        """Of a group that was made of ``OurNode``."""
        node = self.nodes[name]
        assert isinstance(node, OurNode)
        return node

    @property
    def leader(self) -> VirtualNode | None:
        """Who leads in the highest term, if anybody does."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        return max(leaders, key=lambda node: node.term, default=None)

    def elect(self) -> VirtualNode:
        """Run until somebody leads and all agree on what is committed."""

        def is_settled() -> bool:
            leader = self.leader
            return leader is not None and leader.entry_at(leader.commit_index)[2] == leader.term

        for _ in range(ELECTIONS_MAX):
            assert self.run_for(10_000, is_settled), "nobody was elected within 10 s"
            self.run_for(100)
            leader = self.leader
            # A vote that was under way may have ended this lead again.
            if leader is not None and is_settled():
                return leader
        raise AssertionError(f"nobody kept the lead for 100 ms in {ELECTIONS_MAX} elections")

    def commit(self, text: str) -> bool | None:
        """Propose at the leader and run until it answers; None: it says unknown, or nothing in 5 s."""
        answers: list[bool | None] = []
        leader = self.elect()
        leader.propose(text, answers.append)
        self.run_for(5_000, lambda: bool(answers))
        return answers[0] if answers else None


class OurNode(VirtualNode):
    """A ``SimulatedMember`` with a ``LedgerMachine``."""

    def __init__(
        self, group: VirtualGroup, name: str, *, compaction_entries: int = 20_000, recorded_index: int = 0
    ) -> None:
        self.name = name
        self.outcomes: list[ProposalOutcome] = []
        self.member: SimulatedMember[Ledger] = SimulatedMember(
            LedgerMachine(),
            me=ControllerName(name),
            members={
                ControllerName(other): f"127.0.0.1:{9000 + at}"
                for at, other in enumerate(group.names)
                if other in group.founders or other == name
            },
            disk=group.disks[name],
            timing=TIMING,
            seams=Seams(
                monotonic_ns=lambda: group.now_ns,
                random=group.random.random,
                fail_stop=raise_stopped,
                run_beside=lambda work: work(),
            ),
            send=lambda peer, message: group.nodes.get(name) is self and group.send(name, peer, message),
            poll=lambda: group.poll(name),
            compaction_entries=compaction_entries,
            recorded_index=recorded_index,
        )
        self.member.start()

    def tick(self) -> None:
        self.member.tick()

    def receive(self, sender: str, message: Any) -> None:
        self.member.receive(ControllerName(sender), message)

    def link(self, peer: str, *, is_up: bool) -> None:
        (self.member.peer_up if is_up else self.member.peer_down)(ControllerName(peer))

    def propose(self, text: str, done: Callable[[bool | None], None]) -> None:
        def told(outcome: ProposalOutcome) -> None:
            self.outcomes.append(outcome)
            done({"committed": True, "not-proposed": False}.get(outcome.status.value))

        self.member.propose(f'["{text}"]', told)

    @property
    def library(self) -> Any:
        return self.member.raft.node

    @property
    def ids(self) -> list[str]:
        return self.member.published.state.ids


class _StockTransport(Transport):  # type: ignore[misc]
    def __init__(self, send: Callable[[str, Any], bool]) -> None:
        super().__init__(None, None, [])
        self._send_by_name = send

    def send(self, node: Any, message: Any) -> bool:
        return self._send_by_name(node.name, message)

    def destroy(self) -> None:
        """Nothing to close."""


class _StockLedger(SyncObj):  # type: ignore[misc]
    """As the library's examples are written."""

    def __init__(self, me: Member, peers: list[Member], conf: SyncObjConf, transport: Transport) -> None:
        super().__init__(me, peers, conf=conf, transport=transport)
        self.ids: list[str] = []

    @replicated  # type: ignore[untyped-decorator]
    def add(self, text: str) -> int:
        self.ids.append(text)
        if text == "poison":
            raise RuntimeError("poison")
        return len(self.ids)


class _NoPoller:
    def subscribe(self, *_: Any) -> None: ...

    def unsubscribe(self, *_: Any) -> None: ...

    def poll(self, _timeout: float) -> None: ...


class StockNode(VirtualNode):
    """
    The library as it is, without files unless ``journal`` is given.

    ``founders``: the members that a node of theirs knows at its start; the others know all, as nodes that are added do.
    Its own change of members is then switched on.
    """

    def __init__(
        self,
        group: VirtualGroup,
        name: str,
        *,
        compaction_entries: int = 5_000,
        journal: str | None = None,
        founders: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self._members = {
            other: Member(ControllerName(other), at, f"127.0.0.1:{9000 + at}") for at, other in enumerate(group.names)
        }
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=False,
            appendEntriesPeriod=0.05,
            raftMinTimeout=0.3,
            raftMaxTimeout=0.6,
            leaderFallbackTimeout=1.0,
            commandsWaitLeader=False,
            logCompactionMinEntries=compaction_entries,
            journalFile=journal,
            dynamicMembershipChange=bool(founders),
        )
        self._transport = _StockTransport(
            lambda peer, message: group.nodes.get(name) is self and group.send(name, peer, message)
        )
        known = founders if name in founders else group.names
        peers = [member for other, member in self._members.items() if other != name and other in known]
        self._library = _StockLedger(self._members[name], peers, conf, self._transport)

    def tick(self) -> None:
        try:
            self._library.doTick(0.0)
        except RuntimeError:
            return  # as its own thread does: log, go on

    def receive(self, sender: str, message: Any) -> None:
        self._transport._onMessageReceived(self._members[sender], message)

    def link(self, peer: str, *, is_up: bool) -> None:
        member = self._members[peer]
        (self._transport._onNodeConnected if is_up else self._transport._onNodeDisconnected)(member)

    def propose(self, text: str, done: Callable[[bool | None], None]) -> None:
        self._library.add(text, callback=lambda _result, error: done({0: True, 5: None, 7: None}.get(error, False)))

    def change(self, verb: str, other: str, done: Callable[[int], None]) -> None:
        """The library's ``addNodeToCluster`` or ``removeNodeFromCluster``; ``done`` hears its number, 0 = done."""
        call = self._library.addNodeToCluster if verb == "add" else self._library.removeNodeFromCluster
        call(self._members[other], callback=lambda _result, error: done(error))

    @property
    def members(self) -> list[str]:
        """Of its configuration, itself included."""
        return sorted([self.name, *(str(node.name) for node in self._library.otherNodes)])

    @property
    def library(self) -> Any:
        return self._library

    @property
    def ids(self) -> list[str]:
        return list(self._library.ids)


def _use_virtual_library(patch: pytest.MonkeyPatch, now_ns: Callable[[], int]) -> None:
    """The library's clock is the group's, its chance has a seed, and it opens no descriptors."""
    patch.setattr(library_module, "monotonicTime", lambda: now_ns() / 1e9)
    patch.setattr(library_module, "random", Random(1))
    patch.setattr(library_module, "createPoller", lambda _kind: _NoPoller())
    patch.setattr(library_module, "PIPE_NOTIFIER_ENABLED", False)

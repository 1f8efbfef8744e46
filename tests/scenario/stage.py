"""
The stage of the transcripts: the simulated fleet with scripted hands instead of chance.

Here: one verb per command of a transcript, and what the audience sees. Not here: files (``test_scenarios``), the fleet
itself (``tests.sim``). Every invariant is checked after every event, as under a seed.

=====================  ================================================================================================
``world``              ``replicas=3 min=0 flush=async seed=1``: controllers c1..c3 on the real Raft, brokers 1..N
``until serving``      wait for a master that has entered; ``until epoch E``; ``until in-sync N``
``send N``             N messages one after another, each until it is answered; ``send N within MS`` gives up
``kill X`` ``power X`` SIGKILL; the plug, with everything unsynced lost. X: 1..N, c1..c3
``start X`` ``stop X`` a new life; a clean stop
``fail-sync N``        the next sync of broker N that has something to write fails
``pause X`` ``resume`` SIGSTOP, SIGCONT
``cut X Y`` ``heal``   no way between X and Y, both ways; ``cut X > Y`` one way; Y may be ``controllers`` or ``brokers``
``break X``            every connection of X is reset, what is under way is lost
``clock X SECONDS``    X's wall clock jumps, forwards or back
``elect N``            a switchover to N; ``elect-unclean``
``wipe``               all controllers stop and are founded anew; ``backup``, later ``restore``: they begin with it
``run MS``             time passes
``show``               master, epoch, set, logs
``end``                heal, wait for convergence, count what was acknowledged and lost
``case NAME``          a directed case; ``case NAME without RULE``: with that rule switched off
=====================  ================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.controller.contract.ids import BrokerId, FlushMode, LogOffset
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.views import condition_of
from tests.sim import amnesia, directed
from tests.sim.machine import Machine
from tests.sim.mutants import run_case
from tests.sim.mutation import mutated
from tests.sim.mutations import MUTATIONS
from tests.sim.raft import raft_quorum
from tests.sim.violation import Violation
from tests.sim.wire import Answer, message, read_answers
from tests.sim.world import BrokerMachine, Shape, World, product_inside
from tests.support.sim_kernel import MS, SECOND, Host, Process
from tests.support.sim_net import End

_UNSEEN = (
    "MilestoneReached",
    "SessionOpened",
    "loses power",
    "epoch -1",
    "epoch 0",
    "BrokerIdGranted",
    "ReplicaAlive",
    " starts",
    "recovering",
    "registering",
)
"""Noise for the audience."""


class StageError(Exception):
    """A transcript says what the stage does not know."""


class Stage:
    """One transcript's fleet."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._world: World | None = None
        self._seen = 0
        self._value = 0
        self._client: Process | None = None
        self._backup: FleetState | None = None

    def close(self) -> None:
        """Give the library its clock back."""
        self._stack.close()

    def do(self, line: str) -> list[str]:
        """One command; what is to be seen."""
        words = line.split()
        verb = getattr(self, "_do_" + words[0].replace("-", "_"), None)
        if verb is None:
            raise StageError(f"unknown command {line!r}")
        said: list[str] = verb(words[1:]) or []
        return [*self._news(), *said]

    # --- the world ---

    @property
    def world(self) -> World:
        """After ``world``."""
        if self._world is None:
            raise StageError("begin with: world")
        return self._world

    def _news(self) -> list[str]:
        if self._world is None:
            return []
        lines = list(self._world.kernel.lines)
        fresh, self._seen = lines[self._seen :], len(lines)
        texts = [line.partition(" ")[2] for line in fresh]
        shown = [self._plain(text) for text in texts if not any(noise in text for noise in _UNSEEN)]
        return [text for number, text in enumerate(shown) if number == 0 or shown[number - 1] != text]

    def _plain(self, text: str) -> str:
        """Without the names of entries, which change with every unrelated proposal."""
        head, _, rest = text.partition(" ")
        return f"controllers: {rest}" if head.count(".") == 2 else text.replace("s0r", "")

    def _machine(self, name: str) -> Machine:
        if name in self.world.controllers:
            return self.world.controllers[name]
        return self._broker(name)

    def _broker(self, name: str) -> BrokerMachine:
        return self.world.brokers[f"s0r{name}"]

    def _group(self, name: str) -> list[str]:
        if name == "controllers":
            return list(self.world.controllers)
        if name == "brokers":
            return list(self.world.brokers)
        return [self._machine(name).name]

    def _wait(self, what: str, holds: Callable[[], bool], limit_us: int = 20 * SECOND) -> None:
        kernel = self.world.kernel
        if not holds() and not kernel.run_until(kernel.now_us + limit_us, stop=holds):
            raise Violation(f"{what}: not within {limit_us // SECOND} s")

    def _do_world(self, words: list[str]) -> None:
        options = dict(word.split("=") for word in words)
        self._stack.enter_context(product_inside())
        shape = Shape(
            replicas=int(options.get("replicas", "3")),
            producers=0,
            flush=FlushMode(options.get("flush", "async")),
            min_in_sync=int(options.get("min", "0")),
        )
        self._world = World(
            int(options.get("seed", "1")), shape, make_quorum=raft_quorum, keep_lines=True, starts_brokers=False
        )
        self._stack.callback(self._world.close)
        for broker in self.world.brokers.values():
            self.world.start(broker)
            self._wait("an id", lambda broker=broker: broker.node is not None and broker.node.broker_id is not None)  # type: ignore[misc]
        self._client = Process(Host(self.world.kernel, "client"), "client")

    # --- time ---

    def _do_run(self, words: list[str]) -> None:
        kernel = self.world.kernel
        kernel.run_until(kernel.now_us + int(words[0]) * MS)

    def _do_until(self, words: list[str]) -> None:
        world, key = self.world, self.world.keys[0]

        def state_is(name: str, size: int) -> bool:
            state = world.set_state(key)
            if state is None or condition_of(state)[0].value != name:
                return False
            return len(state.sync_state_set) >= size

        if words[0] == "serving":
            self._wait("serving", lambda: state_is("serving", 1))
        elif words[0] == "in-sync":
            self._wait("in sync", lambda: state_is("serving", int(words[1])))
        elif words[0] == "epoch":
            self._wait("epoch", lambda: state_is("serving", 1) and self._epoch() >= int(words[1]))
        elif words[0] == "role":
            node = self._broker(words[1]).node
            self._wait("role", lambda: node is not None and node.published.state.value == words[2])
        else:
            raise StageError(f"until what? {words}")

    def _epoch(self) -> int:
        state = self.world.set_state(self.world.keys[0])
        return state.master_epoch if state is not None else 0

    # --- hands ---

    def _do_kill(self, words: list[str]) -> None:
        self.world.kill(self._machine(words[0]))

    def _do_power(self, words: list[str]) -> list[str]:
        said = []
        for word in words:
            machine = self._machine(word)
            lost_bytes = self.world.lose_power(machine, forgets_all=True)
            said.append(f"{word}: {lost_bytes} unsynced bytes are gone")
        return said

    def _do_fail_sync(self, words: list[str]) -> None:
        self._broker(words[0]).files.failing_syncs = 1

    def _do_start(self, words: list[str]) -> None:
        for word in words:
            self.world.start(self._machine(word))

    def _do_stop(self, words: list[str]) -> None:
        node = self._broker(words[0]).node
        assert node is not None
        node.stop()

    def _do_wipe(self, _words: list[str]) -> None:
        amnesia.wipe(self.world)

    def _do_backup(self, _words: list[str]) -> None:
        self._backup = self.world.oracle.state

    def _do_restore(self, _words: list[str]) -> None:
        if self._backup is None:
            raise StageError("restore what? begin with: backup")
        amnesia.restore(self.world, self._backup)

    def _do_pause(self, words: list[str]) -> None:
        self._machine(words[0]).process.pause()

    def _do_resume(self, words: list[str]) -> None:
        self._machine(words[0]).process.resume()

    def _do_cut(self, words: list[str]) -> None:
        is_one_way = ">" in words
        sources, targets = self._group(words[0]), self._group(words[-1])
        for source in sources:
            for target in targets:
                if source != target:
                    self.world.net.cut(source, target)
                    if not is_one_way:
                        self.world.net.cut(target, source)

    def _do_heal(self, _words: list[str]) -> None:
        self.world.net.heal_all()

    def _do_break(self, words: list[str]) -> None:
        self.world.net.break_host(self._machine(words[0]).name)

    def _do_clock(self, words: list[str]) -> None:
        self._machine(words[0]).host.wall_offset_us += int(words[1]) * SECOND

    def _do_elect(self, words: list[str]) -> None:
        self.world.elect(self.world.keys[0], BrokerId(int(words[0])))
        self._do_run(["60"])

    def _do_elect_unclean(self, _words: list[str]) -> None:
        self.world.elect(self.world.keys[0], None, accepted_loss_bytes=1 << 40)
        self._do_run(["60"])

    # --- messages ---

    def _do_send(self, words: list[str]) -> list[str]:
        limit_ms = int(words[2]) if len(words) > 2 else 5_000
        outcomes: dict[str, int] = {}
        for _ in range(int(words[0])):
            outcome = self._send_one(limit_ms)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        return ["client: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))]

    def _send_one(self, limit_ms: int) -> str:
        """To whoever calls itself master in the highest epoch; each message has a producer of its own."""
        world, client = self.world, self._client
        assert client is not None
        self._value += 1
        value = self._value
        masters = [
            broker
            for broker in world.brokers.values()
            if broker.process.is_alive and broker.node is not None and broker.node.published.state.value == "master"
        ]
        world.oracle.sent(world.keys[0], value)
        if not masters:
            return "without a master"
        target = max(masters, key=lambda broker: broker.node.published.master_epoch if broker.node is not None else 0)
        heard: list[str] = []

        def answered(answer: Answer) -> None:
            if answer.is_acked:
                world.oracle.acknowledged(world.keys[0], value, LogOffset(answer.end), answer.place)
                heard.append("acked")
            elif answer.is_unknown:
                heard.append("outcome unknown")
            else:
                heard.append(f"refused ({answer.reason})")

        def opened(end: End) -> None:
            read_answers(end, answered)
            end.send(message(1, ProducerStamp(value.to_bytes(16, "big"), 0, 0), value))

        address = target.plan.description.address
        world.net.connect(client, address, target.name, opened, lambda: heard.append("refused (connection)"))
        world.kernel.run_until(world.kernel.now_us + limit_ms * MS, stop=lambda: bool(heard))
        return heard[0] if heard else "unanswered"

    # --- looking ---

    def _do_show(self, _words: list[str]) -> list[str]:
        state = self.world.set_state(self.world.keys[0])
        assert state is not None
        members = ",".join(map(str, state.sync_state_set))
        said = [
            f"set: master {state.master} epoch {state.master_epoch} set {{{members}}} {condition_of(state)[0].value}"
        ]
        for broker in self.world.brokers.values():
            node = broker.node
            if node is None or not broker.process.is_alive:
                said.append(f"{broker.name[3:]}: down")
                continue
            epochs = " ".join(f"{entry.epoch}:{entry.start_offset}" for entry in broker.disk.history().entries)
            said.append(
                f"{broker.name[3:]}: {node.published.state.value}, log ends at {broker.disk.size()}, epochs {epochs or 'none'}"
            )
        return said

    def _do_end(self, _words: list[str]) -> list[str]:
        self.world.settle()
        facts = self.world.oracle.facts(self.world.keys[0])
        return [f"end: {len(facts.acked) + len(facts.forgiven)} acked, {len(facts.forgiven)} lost, all replicas equal"]

    def _do_case(self, words: list[str]) -> list[str]:
        case = directed.CASES[words[0]]
        story = (case.__doc__ or "").strip().splitlines()[0]
        if len(words) == 1:
            found = run_case(case)
            return [story, "the promise is kept" if found is None else f"BROKEN: {found}"]
        rule = words[2]
        (mutation,) = [one for one in MUTATIONS if one.name == rule]
        with mutated(mutation):
            found = run_case(case)
        return [f"without {rule}, {mutation.what}:", found or "nothing is noticed"]

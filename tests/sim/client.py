"""
Clients of the simulation: producers, consumers, and those that ask for what is not served.

A producer sends one message at a time, the same sequence again until there is a definite answer (R18). Only PUT_OK is an
acknowledgement. A definite "not appended" lets the message go to another replica; a refused sequence ends the producer's
epoch, and the message in question counts as not acknowledged. Some of its messages are prepared ones, which a broker of before
took (``wire.OF_BEFORE``).
"""

from __future__ import annotations

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.controller.contract.ids import LogOffset, SetKey
from tests.sim.log import RECORD_BYTES
from tests.sim.oracle import Oracle
from tests.sim.violation import Violation
from tests.sim.wire import UNSERVED, Answer, ask_offset, delayed, message, read_answers, unserved
from tests.support.sim_kernel import MS, Process
from tests.support.sim_net import End, SimNet


class Producer:
    """One producer of one set."""

    def __init__(
        self,
        *,
        process: Process,
        net: SimNet,
        oracle: Oracle,
        key: SetKey,
        addresses: tuple[str, ...],
        first_value: int,
        pause_ms: int,
        prepares: float,
        delays: float,
    ) -> None:
        """``prepares``, ``delays``: the shares of its messages that are prepared ones, and that are delayed."""
        self._process = process
        self._net = net
        self._oracle = oracle
        self._key = key
        self._addresses = addresses
        self._prepares = prepares
        self._is_prepared = False
        self._delays = delays
        self._level = 0
        self._size = RECORD_BYTES
        self._at = 0
        self._value = first_value
        self._pause_ms = pause_ms
        self._producer_id = process.kernel.random.getrandbits(128).to_bytes(16, "big")
        self._producer_epoch = 0
        self._sequence = 0
        self._end: End | None = None
        self._generation = 0
        self._number = 0
        self.is_stopped = False
        self.is_waiting = False

    def start(self) -> None:
        """Begin to send."""
        self._next()

    def _next(self) -> None:
        if self.is_stopped:
            self.is_waiting = False
            return
        self.is_waiting = True
        self._is_prepared = self._prepares > 0 and self._process.kernel.chance(self._prepares)
        is_delayed = self._delays > 0 and not self._is_prepared and self._process.kernel.chance(self._delays)
        self._level = self._process.kernel.random.randrange(1, 3) if is_delayed else 0
        self._oracle.sent(self._key, self._value)
        self._try()

    def _try(self) -> None:
        self._generation += 1
        generation = self._generation
        timeout_us = self._process.kernel.random.randrange(300, 900) * MS
        self._process.after(timeout_us, "send timeout", lambda: self._failed(generation, move=True))
        if self._end is not None and self._end.is_open:
            self._send(self._end)
            return
        address = self._addresses[self._at % len(self._addresses)]

        def opened(end: End) -> None:
            if generation != self._generation:
                end.close()
                return
            self._end = end
            read_answers(end, lambda answer: self._answer(end, answer))
            end.on_closed = lambda: self._failed(generation, move=True)
            self._send(end)

        host = self._net.host_of(address.partition(":")[0])
        self._net.connect(self._process, address, host, opened, lambda: self._failed(generation, move=True))

    def _send(self, end: End) -> None:
        self._number += 1
        self._process.kernel.counts.add("sends")
        stamp = ProducerStamp(self._producer_id, self._producer_epoch, self._sequence)
        if self._level:
            frame, self._size = delayed(self._number, stamp, self._value, self._level)
        else:
            frame, self._size = message(self._number, stamp, self._value, is_prepared=self._is_prepared), RECORD_BYTES
        end.send(frame)

    def _failed(self, generation: int, *, move: bool, hint: str | None = None) -> None:
        if generation != self._generation or not self.is_waiting:
            return
        self._generation += 1
        again = self._generation
        if move:
            if self._end is not None:
                self._end.close()
                self._end = None
            self._at = self._addresses.index(hint) if hint in self._addresses else self._at + 1
            self._process.kernel.counts.add("sends retried")
        delay_us = self._process.kernel.random.randrange(5, 60) * MS
        self._process.after(delay_us, "retry", lambda: self._try() if again == self._generation else None)

    def _answer(self, end: End, answer: Answer) -> None:
        if end is not self._end or not self.is_waiting or answer.number != self._number:
            return
        if answer.is_acked:
            self._process.kernel.counts.add("delayed messages acked", int(self._level > 0))
            stored = answer.end + self._size - RECORD_BYTES if answer.end else 0
            self._oracle.acknowledged(self._key, self._value, LogOffset(stored), answer.place)
            self._sequence += 1
            self._done()
        elif answer.is_number_lost:
            self._process.kernel.counts.add("producer epochs ended")
            self._producer_epoch += 1
            self._sequence = 0
            self._done()
        else:
            self._process.kernel.counts.add("outcomes unknown", int(answer.is_unknown))
            self._failed(self._generation, move=True, hint=answer.master)

    def _done(self) -> None:
        self._generation += 1
        generation = self._generation
        self.is_waiting = False
        self._value += 1
        delay_us = self._process.kernel.random.randrange(1, 2 * self._pause_ms) * MS
        self._process.after(delay_us, "next", lambda: self._next() if generation == self._generation else None)


class Consumer:
    """Goes on where it was told to; whoever reigns must know that offset (R19)."""

    def __init__(
        self, *, process: Process, net: SimNet, oracle: Oracle, key: SetKey, addresses: tuple[str, ...], pause_ms: int
    ) -> None:
        self._process = process
        self._net = net
        self._oracle = oracle
        self._key = key
        self._addresses = addresses
        self._pause_ms = pause_ms
        self._asked = 0
        self._offset = 0

    def ask(self) -> None:
        """One replica, by a connection of its own; then the next one."""
        self._asked += 1
        number, address = self._asked, self._addresses[self._asked % len(self._addresses)]

        def opened(end: End) -> None:
            read_answers(end, lambda answer: self._answered(end, answer))
            end.send(ask_offset(number, self._offset))
            self._process.after(400 * MS, "pull timeout", end.close)

        host = self._net.host_of(address.partition(":")[0])
        self._net.connect(self._process, address, host, opened, lambda: None)
        self._process.after(self._process.kernel.random.randrange(1, 2 * self._pause_ms) * MS, "pull", self.ask)

    def _answered(self, end: End, answer: Answer) -> None:
        """Of the confirmed end of the queue, by any replica: a slave may be behind, and an answer may be late."""
        end.close()
        confirmed = int(answer.fields.get("offset", "0"))
        if confirmed < self._offset:
            self._process.kernel.counts.add("consumers sent back")
        self._offset = confirmed


class Petitioner:
    """Asks for transactions, timers and POP: who stores that as an ordinary message delivers it at once."""

    def __init__(self, *, process: Process, net: SimNet, addresses: tuple[str, ...], pause_ms: int) -> None:
        self._process = process
        self._net = net
        self._addresses = addresses
        self._pause_ms = pause_ms

    def ask(self) -> None:
        """Any replica, for anything that is not served; by a connection of its own, until the end of time."""
        random = self._process.kernel.random
        address, which = random.choice(self._addresses), random.randrange(len(UNSERVED))

        def opened(end: End) -> None:
            read_answers(end, lambda answer: self._answered(end, which, answer))
            end.send(unserved(1, which))
            self._process.after(400 * MS, "petition timeout", end.close)

        host = self._net.host_of(address.partition(":")[0])
        self._net.connect(self._process, address, host, opened, lambda: None)
        self._process.after(random.randrange(1, 2 * self._pause_ms) * MS, "petition", self.ask)

    def _answered(self, end: End, which: int, answer: Answer) -> None:
        """I11: a master refuses it as illegal; who is none says so first."""
        end.close()
        if answer.is_acked:
            raise Violation(f"I11: {UNSERVED[which]} is acknowledged as an ordinary message")
        self._process.kernel.counts.add("prepared sends refused", int(answer.code == ClientResult.MESSAGE_ILLEGAL))

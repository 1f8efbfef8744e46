"""
RocketMQ's controllers and brokers as far as moving a set needs them, on sockets, without Java.

Written from docs/wire.md; ``tests.interop_java.move`` asks it and a real controller the same questions and compares.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.support.frames import FrameDecoder

HEARTBEAT_TIMEOUT_S = 10.0

Answer = tuple[int, dict[str, object], bytes]
_FINE: Answer = (0, {}, b"")


@dataclass(slots=True)
class FakeSet:
    cluster: str
    next_id: int = 1
    ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Address and check code by id."""
    master: int | None = None
    epoch: int = 0
    members: set[int] = field(default_factory=set)
    set_epoch: int = 0


class FakeControllers:
    """One controller that leads."""

    def __init__(self) -> None:
        self.sets: dict[str, FakeSet] = {}
        self.heard: dict[tuple[str, str, int], float] = {}
        self.address = ""
        self.asked: list[int] = []

    def serve(self, frame: Frame) -> Answer:
        fields = frame.ext_fields or {}
        self.asked.append(frame.code)
        name = fields.get("brokerName", "")
        codes: dict[int, Callable[[], Answer]] = {
            904: lambda: self._heartbeat(fields),
            1002: lambda: self._elect(name, fields),
            1003: lambda: self._register(name, fields),
            1004: lambda: self._replica_info(name),
            1005: lambda: (
                0,
                {"controllerLeaderAddress": self.address, "isLeader": "true", "peers": "", "group": "g"},
                b"",
            ),
            1006: lambda: self._sync_state_data(frame.body),
            1011: lambda: self._clean(name, fields),
            1012: lambda: (0, {"nextBrokerId": self.sets[name].next_id if name in self.sets else 1}, b""),
            1013: lambda: self._apply(name, fields),
        }
        return codes[frame.code]() if frame.code in codes else (3, {}, b"")

    def is_alive(self, name: str, number: int | None) -> bool:
        found = self.sets[name]
        at_s = self.heard.get((found.cluster, name, number or 0))
        return at_s is not None and time.monotonic() - at_s <= HEARTBEAT_TIMEOUT_S

    def _heartbeat(self, fields: dict[str, str]) -> Answer:
        self.heard[(fields["clusterName"], fields["brokerName"], int(fields["brokerId"]))] = time.monotonic()
        return _FINE

    def _apply(self, name: str, fields: dict[str, str]) -> Answer:
        number, code = int(fields["appliedBrokerId"]), fields["registerCheckCode"]
        found = self.sets.get(name)
        if found is None and number != 1:
            return 2014, {}, b""
        if found is None:
            found = self.sets[name] = FakeSet(cluster=fields["clusterName"])
        if number in found.ids:
            return (0 if found.ids[number][1] == code else 2014), {}, b""
        found.ids[number] = (code.split(";")[0], code)
        found.next_id += 1
        return _FINE

    def _register(self, name: str, fields: dict[str, str]) -> Answer:
        found, number = self.sets.get(name), int(fields["brokerId"])
        if found is None or number not in found.ids:
            return 2010, {}, b""
        found.ids[number] = (fields["brokerAddress"], found.ids[number][1])
        header = self._master(found) if self.is_alive(name, found.master) else {}
        return 0, header, self._body(found)

    def _elect(self, name: str, fields: dict[str, str]) -> Answer:
        found, asker = self.sets.get(name), int(fields.get("brokerId", "-1"))
        if found is None:
            return 2010, {}, b""
        winner: int | None = asker if found.epoch == 0 and asker != -1 else None
        if winner is None:
            alive = [number for number in sorted(found.members) if self.is_alive(name, number)]
            winner = found.master if found.master in alive else next(iter(alive), None)
        if winner is not None and winner == found.master:
            return 2011, self._master(found), msgspec.json.encode({"syncStateSet": sorted(found.members)})
        if winner is None and asker != -1:
            return 2012, {}, b""
        found.master, found.epoch = winner, found.epoch + 1
        if winner is None:
            return 2004, {}, b""
        found.members, found.set_epoch = {winner}, found.set_epoch + 1
        return 0, self._master(found), msgspec.json.encode({"syncStateSet": [winner]})

    def _replica_info(self, name: str) -> Answer:
        found = self.sets.get(name)
        if found is None:
            return 2008, {}, b""
        header = {name: value for name, value in self._master(found).items() if name != "syncStateSetEpoch"}
        return 0, header, self._body(found)

    def _master(self, found: FakeSet) -> dict[str, object]:
        header: dict[str, object] = {"masterEpoch": found.epoch, "syncStateSetEpoch": found.set_epoch}
        if found.master is not None:
            header |= {"masterBrokerId": found.master, "masterAddress": found.ids[found.master][0]}
        return header

    def _body(self, found: FakeSet) -> bytes:
        return msgspec.json.encode({"syncStateSet": sorted(found.members), "syncStateSetEpoch": found.set_epoch})

    def _sync_state_data(self, body: bytes) -> Answer:
        table: dict[str, Any] = {}
        for name in msgspec.json.decode(body):
            found = self.sets.get(name)
            if found is None:
                continue
            replicas = {
                number: {
                    "alive": self.is_alive(name, number),
                    "brokerAddress": address,
                    "brokerId": number,
                    "brokerName": name,
                }
                for number, (address, _) in found.ids.items()
            }
            table[name] = {
                "inSyncReplicas": [replica for number, replica in replicas.items() if number in found.members],
                "notInSyncReplicas": [replica for number, replica in replicas.items() if number not in found.members],
                "masterEpoch": found.epoch,
                "syncStateSetEpoch": found.set_epoch,
            }
            if found.master is not None:
                table[name] |= {"masterBrokerId": found.master, "masterAddress": found.ids[found.master][0]}
        return 0, {}, msgspec.json.encode({"replicasInfoTable": table})

    def _clean(self, name: str, fields: dict[str, str]) -> Answer:
        found, ids = self.sets.get(name), fields.get("brokerControllerIdsToClean")
        if found is None:
            return 2009, {}, b""
        if not ids:
            if found.master is not None:
                return 2009, {}, b""
            del self.sets[name]
            return _FINE
        numbers = [int(text) for text in ids.split(";")]
        if any(self.is_alive(name, number) for number in numbers):
            return 2009, {}, b""
        for number in numbers:
            found.ids.pop(number, None)
            found.members.discard(number)
        if not found.members or not found.ids:
            # RocketMQ keeps half of such a set; what is left of it is no set to anybody.
            del self.sets[name]
        return _FINE


@dataclass(slots=True)
class FakeBroker:
    """Answers 1007 with its epochs, 106 as a name server of its set."""

    name: str
    cluster: str
    epochs: tuple[int, ...]

    def serve(self, frame: Frame) -> Answer:
        if frame.code == 1007:
            entries = [{"epoch": epoch, "startOffset": 10 * epoch, "endOffset": 0} for epoch in self.epochs]
            cache = {"brokerName": self.name, "clusterName": self.cluster, "epochList": entries, "maxOffset": 1}
            return 0, {}, msgspec.json.encode(cache)
        if frame.code == 106:
            text = f'{{"brokerAddrTable":{{"{self.name}":{{"brokerAddrs":{{0:"x"}},"cluster":"{self.cluster}"}}}}}}'
            return 0, {}, text.encode()
        return 3, {}, b""


@contextmanager
def serving(answers: Callable[[Frame], Answer]) -> Iterator[str]:
    """Listen on a free port of loopback; the address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = FrameDecoder()
            while data := self.request.recv(65536):
                for frame in decoder.feed(data):
                    code, header, body = answers(frame)
                    if not frame.is_one_way:
                        fields = {name: str(value) for name, value in header.items()}
                        reply = Frame(code=code, opaque=frame.opaque, flag=1, ext_fields=fields, body=body)
                        self.request.sendall(encode_frame(reply))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

"""
A broker set as the room of consumers sees it: one log, replicas that read and write it, clients, and their time.

``SetLog`` is the log; ``Member`` a replica with its groups and offsets; ``Client`` a link that keeps what it was told;
``SmallSet`` one of each.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from rollcall_ha.broker.consuming.assignments import Assignments
from rollcall_ha.broker.consuming.group_settings import GroupSettings
from rollcall_ha.broker.consuming.groups import Groups
from rollcall_ha.broker.consuming.lag import Lags
from rollcall_ha.broker.consuming.offsets import Offsets
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS, TOPIC, ConsumerLog
from rollcall_ha.broker.consuming.tools import About, Tools
from rollcall_ha.broker.consuming.topics import Topics
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.log.record import Draft, pack, record_bytes
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.topics import data_version
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, LogOffset, MasterEpoch, SetKey
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame, decode_frame

HOST = b"\x7f\0\0\1\0\0\0\0"
NAME = "a"
KEY = SetKey(ClusterName("c"), BrokerName(NAME))


class Time:
    """A clock that is moved by hand, and what it runs."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now_ms + max(delay_ms, 1), self._number, call))

    def run(self, ms: int) -> None:
        """All that is due within ``ms``."""
        end = self.now_ms + ms
        while self._due and self._due[0][0] <= end:
            self.now_ms, _, call = heapq.heappop(self._due)
            call()
        self.now_ms = end


class SetLog:
    """Records in one buffer: a view that is kept too long lets the next append fail."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.records: list[tuple[QueueKey, int, int]] = []
        """Queue, place and size."""
        self.confirmed = 0
        """So many of them are."""
        self.min_offset = 0
        self.waiting: list[tuple[int, Callable[[str], None]]] = []
        self.readers: list[Member] = []
        self.now_ms = 1

    def append(self, key: QueueKey, body: bytes, properties: bytes = b"", stored_at_ms: int = 0) -> None:
        draft = Draft(topic=key[0], queue_id=key[1], body=body, properties=properties)
        size, place = record_bytes(draft, HOST), len(self.data)
        self.data += bytes(size)
        self.now_ms += 1
        queue_offset = sum(each == key for each, _, _ in self.records)
        with memoryview(self.data) as view:
            pack(
                view,
                place,
                draft,
                total_bytes=size,
                physical_offset=place,
                queue_offset=queue_offset,
                stored_at_ms=stored_at_ms or self.now_ms,
                store_host=HOST,
            )
        self.records.append((key, place, size))

    def confirm(self, count: int | None = None) -> None:
        """``count`` more records, all of them by default; who waits for them hears it."""
        more = len(self.records) - self.confirmed if count is None else count
        new = self.records[self.confirmed : self.confirmed + more]
        self.confirmed += len(new)
        for reader in self.readers:
            reader.grown({key for key, _, _ in new})
        told = [each for each in self.waiting if each[0] <= self.confirmed]
        self.waiting = [each for each in self.waiting if each[0] > self.confirmed]
        for _, on_outcome in told:
            on_outcome("")

    def cut(self, keep: int) -> None:
        """Only ``keep`` records are left."""
        del self.data[sum(size for _, _, size in self.records[:keep]) :]
        del self.records[keep:]
        self.confirmed = min(self.confirmed, keep)

    def end_epoch(self) -> None:
        """Nobody hears of what is not confirmed any more."""
        waiting, self.waiting = self.waiting, []
        for _, on_outcome in waiting:
            on_outcome("its masterEpoch ended")

    def bodies(self, topic: bytes) -> list[bytes]:
        """Of all records of a topic, confirmed or not."""
        return [
            bytes(self.data[place + 88 : place + 88 + int.from_bytes(self.data[place + 84 : place + 88], "big")])
            for key, place, _ in self.records
            if key[0] == topic
        ]


class SetQueue:
    """One queue, as ``broker.folds.ports.Queue``."""

    def __init__(self, log: SetLog, key: QueueKey) -> None:
        visible = [(place, size) for each, place, size in log.records[: log.confirmed] if each == key]
        self._units = [UNIT.pack(place, size, 0) for place, size in visible]
        self.min_offset = sum(place < log.min_offset for place, _ in visible)

    @property
    def max_offset(self) -> int:
        return len(self._units)

    def units(self, start: int, count_max: int) -> bytes:
        start = max(start, self.min_offset)
        return b"".join(self._units[start : start + count_max])


class Member:
    """A replica: folds, records, standing and appender in one, with its groups and offsets."""

    def __init__(self, log: SetLog, time: Time, *, is_master: bool = False, near_bytes: int = 10_000_000) -> None:
        self.log = log
        self.time = time
        self.is_master = is_master
        self.broker_name = NAME
        self.cluster = "c"
        self.master_epoch = MasterEpoch(1)
        self.left_bytes = 0
        """What the folds have not taken in; they show nothing meanwhile."""
        self.refuses = ""
        """Why appends are refused."""
        self.full_disk = ""
        self.woken: list[QueueKey] = []
        self.damage: list[str] = []
        """Why its queues are to be built anew."""
        self._on_grown: list[Callable[[Sequence[QueueKey]], None]] = []
        log.readers.append(self)
        at = Around(
            folds=self, appender=self, standing=self, near_bytes=near_bytes, now_ms=lambda: time.now_ms,
            on_damaged=self.damage.append, version=_version,
        )  # fmt: skip
        # One group per record: telling all of them takes several.
        self.consumers = ConsumerLog(at, after=time.after, again_bytes=1)
        self.topics = Topics(at, self.consumers)
        self.settings = GroupSettings(at, self.consumers)
        self.groups = Groups(at, self.consumers, self.settings)
        self.offsets = Offsets(at, self.consumers, topics=self.topics, wake=self.woken.extend)
        self.tools = Tools(
            at,
            self.consumers,
            groups=self.groups,
            topics=self.topics,
            about=About(
                config=lambda: {"brokerName": NAME},
                disk_share=lambda: self.disk_share,
                wall_ms=lambda: 1_700_000_000_000,
            ),
            history=lambda: (
                2,
                EpochHistory([EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0))]),
                LogOffset(9),
            ),
            put_total=lambda: len(log.records),
            pulled_total=lambda: self.pulled,
        )
        self.disk_share: float | None = None
        self.pulled = 0
        self.lags = Lags(at, self.consumers, groups=self.groups, topics=self.topics)
        follow = self.consumers.follow
        self.assignments = Assignments(at, groups=self.groups, topics=self.topics, follow=follow)
        parts = (self.groups, self.assignments, self.offsets, self.topics, self.settings, self.tools, self.lags)
        self.responders: dict[int, Responder] = {
            code: answer for part in parts for code, answer in part.responders().items()
        }

    @property
    def serves_reads(self) -> bool:
        return self.is_master

    gives_as_slave = False
    knows_master = True

    def next_reader(self, wished: int, *, is_far: bool) -> int:
        raise AssertionError("nobody pulls here")

    @property
    def min_offset(self) -> int:
        return self.log.min_offset

    @property
    def confirm_offset(self) -> int:
        return sum(size for _, _, size in self.log.records[: self.log.confirmed])

    def record(self, offset: int, size: int) -> memoryview | None:
        return memoryview(self.log.data)[offset : offset + size] if offset + size <= len(self.log.data) else None

    def queue(self, topic: bytes, queue_id: int) -> SetQueue | None:
        return SetQueue(self.log, (topic, queue_id)) if queue_id in self.queue_ids(topic) else None

    def queue_ids(self, topic: bytes) -> Sequence[int]:
        visible = () if self.left_bytes else self.log.records[: self.log.confirmed]
        return sorted({key[1] for key, _, _ in visible if key[0] == topic})

    @property
    def knows_all(self) -> bool:
        return self.log.min_offset == 0

    def topic_names(self) -> Collection[bytes]:
        return set() if self.left_bytes else {key[0] for key, _, _ in self.log.records[: self.log.confirmed]}

    def catch_up(self) -> int:
        return self.left_bytes

    def subscribe_grown(self, on_grown: Callable[[Sequence[QueueKey]], None]) -> None:
        self._on_grown.append(on_grown)

    def grown(self, keys: set[QueueKey]) -> None:
        if not self.left_bytes:
            for on_grown in self._on_grown:
                on_grown(sorted(keys))

    def refusal(self) -> str:
        return self.refuses or ("" if self.is_master else "not the master")

    def append_run(self, drafts: Sequence[Draft], on_outcome: Callable[[str], None]) -> str:
        raise AssertionError("no room of consumers appends a run")

    def append(
        self, topic: bytes, queue_id: int, body: bytes, properties: bytes, on_outcome: Callable[[str], None]
    ) -> None:
        if refusal := self.refusal():
            on_outcome(refusal)
            return
        self.log.append((topic, queue_id), body, properties)
        self.log.waiting.append((len(self.log.records), on_outcome))


def _version(changes: int) -> dict[str, int]:
    return data_version(changes, 1, 1_700_000_000_000)


class Client:
    """A client's link to one replica."""

    def __init__(self, member: Member, client_id: str = "c1", peer: str = "10.0.0.1:4000") -> None:
        self.member = member
        self.client_id = client_id
        self.certificate: PeerCertificate | None = None
        self.peer = peer
        self.answers: list[Frame] = []
        self.news: list[str] = []
        """Groups that it was told of by a 40."""

    @property
    def link(self) -> RemotingConnection:
        return cast("RemotingConnection", self)

    def respond(
        self,
        request: Frame,
        code: int,
        *,
        body: bytes = b"",
        ext_fields: dict[str, str] | None = None,
        remark: str | None = None,
        version: int = 0,
    ) -> None:
        if not request.is_one_way:
            self.answers.append(
                Frame(
                    code=code,
                    opaque=request.opaque,
                    body=body,
                    ext_fields=ext_fields,
                    remark=remark,
                    version=version,
                )
            )

    def send_bytes(self, data: bytes) -> None:
        frame = decode_frame(data[4:])
        assert frame.code == 40
        assert frame.is_one_way
        self.news.append((frame.ext_fields or {})["consumerGroup"])

    def ask(self, code: int, body: object = None, **fields: object) -> Frame | None:
        """The answer, None: it has not come yet; ``flag`` is the frame's, all others are fields of the header."""
        told = len(self.answers)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        flag = int(str(fields.pop("flag", 0)))
        texts = {name: str(value) for name, value in fields.items()}
        self.member.responders[code](
            self.link, Frame(code=code, opaque=1, flag=flag, body=data, ext_fields=texts, language="JAVA", version=479)
        )
        return self.answers[-1] if len(self.answers) > told else None

    def beat(self, group: str = "g", topics: dict[str, tuple[str, int]] | None = None, **changed: Any) -> Frame:
        """A heartbeat for one group; ``topics`` are texts and versions."""
        words = {"T": ("*", 1)} if topics is None else topics
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": topic, "subString": text, "subVersion": version, "expressionType": "TAG", "codeSet": ["7"]}
                for topic, (text, version) in words.items()
            ],
            "unitMode": False,
        } | changed
        answer = self.ask(34, {"clientID": self.client_id, "consumerDataSet": [consumer], "heartbeatFingerprint": 0})
        assert answer is not None
        return answer

    def commit(self, offset: int, group: str = "g", topic: str = "T", queue: int = 0, *, flag: int = 0) -> Frame | None:
        return self.ask(15, consumerGroup=group, topic=topic, queueId=queue, commitOffset=offset, flag=flag)

    def query(self, group: str = "g", topic: str = "T", queue: int = 0, **more: object) -> Frame | None:
        return self.ask(14, consumerGroup=group, topic=topic, queueId=queue, **more)

    def list(self, group: str = "g") -> list[str] | int | None:
        """Client ids, or the code of a refusal; None: no answer yet."""
        answer = self.ask(38, consumerGroup=group)
        if answer is None or answer.code:
            return None if answer is None else answer.code
        ids: list[str] = json.loads(answer.body)["consumerIdList"]
        return ids


class SmallSet:
    """A master, its log, its time, one client of it."""

    def __init__(self) -> None:
        self.time, self.log = Time(), SetLog()
        self.master = Member(self.log, self.time, is_master=True)
        self.client = Client(self.master)

    def settle(self) -> None:
        """What was gathered is written and confirmed."""
        self.time.run(COMMIT_INTERVAL_MS)
        self.log.confirm()
        self.time.run(COMMIT_INTERVAL_MS)
        self.log.confirm()

    def messages(self, count: int, key: QueueKey = (b"T", 0)) -> None:
        """``count`` messages, stored at 1000, 2000, ... ms."""
        for number in range(count):
            self.log.append(key, b"x", stored_at_ms=1_000 * (number + 1))
        self.log.confirm()

    def take_over(self) -> Client:
        """Another replica is master, and has what is confirmed; a client of it."""
        self.log.cut(self.log.confirmed)
        self.master.is_master = False
        self.log.end_epoch()
        self.master = Member(self.log, self.time, is_master=True)
        return Client(self.master)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(body) for body in self.log.bodies(TOPIC)]


def code(answer: Frame | None) -> int | None:
    return None if answer is None else answer.code


def offset(answer: Frame | None) -> int:
    assert answer is not None
    assert answer.code == 0, answer.remark
    return int((answer.ext_fields or {})["offset"])

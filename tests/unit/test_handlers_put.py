"""The put path: what is appended, what is refused and how, when answers leave (R17, R18, R22)."""

from __future__ import annotations

import resource
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.broker.handlers.put import PutLimits, PutPath, _Waiting
from rollcall_ha.broker.protocol.codes import ClientResult, SendOutcome, SendRefusal
from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.send import SendRequest, encode_send, parse_frame
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.remoting.frame import Frame, decode_frame, encode_frame
from tests.support.log_broker import LogBroker
from tests.support.log_tools import read_by_the_document

PRODUCER = "0" * 31 + "1"


class Sink:
    """A client that remembers each write as its frames."""

    peer_host = b"\x7f\x00\x00\x01" + (4242).to_bytes(4, "big")

    def __init__(self) -> None:
        self.writes: list[list[Frame]] = []
        self.written_at_us: list[int] = []

    def write_answers(self, data: bytes) -> None:
        self.written_at_us.append(time.monotonic_ns() // 1_000)
        frames = []
        while data:
            length = int.from_bytes(data[:4], "big")
            frames.append(decode_frame(data[4 : 4 + length]))
            data = data[4 + length :]
        self.writes.append(frames)

    @property
    def answers(self) -> dict[int, tuple[int, str | None, str | None]]:
        """Code, reason and outcome by opaque."""
        return {
            each.opaque: (each.code, (each.ext_fields or {}).get("reason"), (each.ext_fields or {}).get("outcome"))
            for write in self.writes
            for each in write
        }


def send(
    opaque: int,
    sequence: int | None = None,
    *,
    body: bytes = b"x",
    epoch: int = 0,
    queue_id: int = 0,
    waited_us: int = 0,
) -> SendRequest:
    """As it arrives."""
    stamp = "" if sequence is None else f"ROLLCALL_SEQ\x01{PRODUCER}:{epoch}:{sequence}\x02"
    raw = encode_send(
        opaque=opaque,
        group="g",
        topic="T",
        queue_id=queue_id,
        born_at_ms=1,
        properties=stamp,
        body=body,
        waited_us=waited_us,
    )
    found = parse_frame(memoryview(raw)[4:])
    assert isinstance(found, SendRequest)
    return found


def batch_item(body: bytes, properties: bytes, *, flag: int) -> bytes:
    """One message of a batch body, as a Java client writes it."""
    total = 20 + len(body) + 2 + len(properties)
    head = struct.pack(">iiiii", total, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LogBroker]:
    made = LogBroker(tmp_path, 1, limits=PutLimits(body_bytes_max=10_000, waiting_messages_max=5, queues_max=3))
    made.confirms_at_once = False
    made.lead(1)
    yield made
    made.log.close(is_clean=False)


def test_a_batch_is_one_run_one_wake_up_and_one_write_per_client(broker: LogBroker) -> None:
    """And nobody hears anything before confirm has reached the end."""
    sink, other = Sink(), Sink()
    broker.put.handle(sink, [send(1), send(2)])
    broker.put.handle(other, [send(7)])
    broker.put.handle(sink, [send(3)])
    assert (broker.woken, sink.writes) == (3, [])
    broker.put.release(LogOffset(broker.log.max_offset - 1))
    assert [each.opaque for each in sink.writes[0]] == [1, 2]
    broker.put.release(broker.log.max_offset)
    assert [[each.opaque for each in write] for write in (*sink.writes, *other.writes)] == [[1, 2], [3], [7]]
    assert [epoch for epoch, _, _ in broker.first_acks] == [MasterEpoch(1)]
    assert broker.log.released_offset == broker.log.max_offset


def test_the_reader_of_the_first_answer_ran_before_it_was_stamped(broker: LogBroker) -> None:
    """A failover ended in its record after its client knew: the stamp is of before the write, and of the first one."""
    sink = Sink()
    broker.put.handle(sink, [send(1)])
    handled_at_us = time.monotonic_ns() // 1_000
    broker.put.release(broker.log.max_offset)
    broker.put.handle(sink, [send(2)])
    broker.put.release(broker.log.max_offset)
    ((_, first_ack_us, _),) = broker.first_acks
    assert handled_at_us <= first_ack_us <= sink.written_at_us[0] <= sink.written_at_us[1]


def test_the_first_ack_says_how_long_its_longest_waiting_send_had_waited(broker: LogBroker) -> None:
    """The first ack came 31 s after an idle master began to serve, and the record called all of them an outage."""
    sink, other = Sink(), Sink()
    began_us = time.monotonic_ns() // 1_000
    broker.put.handle(sink, [send(1, waited_us=250_000), send(2, 5, waited_us=9_000_000)])
    broker.put.handle(other, [send(7, waited_us=400_000)])
    broker.put.release(broker.log.max_offset)
    ended_us = time.monotonic_ns() // 1_000
    broker.put.handle(sink, [send(3, waited_us=700_000)])
    broker.put.release(broker.log.max_offset)
    ((_, _, waited_us),) = broker.first_acks
    assert sink.answers[2][1] == "producer-unknown", "a send that was refused waits for nothing here"
    assert waited_us is not None
    assert 400_000 <= waited_us <= 400_000 + ended_us - began_us


@pytest.mark.parametrize("told", [b"", b',"waitUs":"-5"', b',"waitUs":"9223372036854775807"'])
def test_a_sender_that_says_no_wait_leaves_it_unknown(broker: LogBroker, told: bytes) -> None:
    """RocketMQ's clients say nothing; a number that is no wait is nothing either. The send is taken all the same."""
    header = b'{"code":310,"extFields":{"b":"T","e":"0"%b},"flag":0,"opaque":1}' % told
    found = parse_frame(memoryview(struct.pack(">I", len(header)) + header + b"body"))
    assert isinstance(found, SendRequest)
    sink = Sink()
    broker.put.handle(sink, [found])
    broker.put.release(broker.log.max_offset)
    assert [waited_us for _, _, waited_us in broker.first_acks] == [None]
    assert sink.answers == {1: (0, None, None)}


def test_r17_a_waiter_of_an_ended_epoch_is_never_released_by_a_later_one(broker: LogBroker) -> None:
    """Appended at 950, demoted, cut, elected again: the same offset is confirmed for other bytes."""
    sink = Sink()
    broker.put.handle(sink, [send(1), send(2)])
    end = broker.log.max_offset
    broker.follow()
    assert sink.answers == {1: (12, "epoch-ended", "unknown"), 2: (12, "epoch-ended", "unknown")}
    broker.lead(2)
    broker.put.release(end)
    assert len(sink.writes) == 1
    assert broker.put.counters.released == 0


def test_r17_a_send_waited_for_the_end_of_an_epoch_that_lasted_for_days(broker: LogBroker) -> None:
    """Two replicas are gone and the set says so nowhere yet: clients of RocketMQ give up after 3 s, and read code 12."""
    sink = Sink()
    broker.put.handle(sink, [send(1, 0), send(2, 1)])
    since_us = broker.put.waiting_since_us
    broker.put.expire()
    assert sink.writes == []

    broker.put.ack_timeout_ms = -1
    broker.put.expire()
    assert sink.answers == {1: (12, "ack-timeout", "unknown"), 2: (12, "ack-timeout", "unknown")}
    assert [(frame.ext_fields or {})["queueOffset"] for frame in sink.writes[0]] == ["0", "1"]
    counters = broker.put.counters
    assert (counters.failed_unknown, counters.timed_out, broker.put.waiting_messages) == (2, 2, 0)
    assert broker.put.waiting_since_us == since_us

    broker.put.handle(sink, [send(3, 0)])
    broker.put.release(broker.log.max_offset)
    assert sink.answers[3][0] == 0
    assert [each.queue_offset for each in read_by_the_document(broker.log._files.log_folder)] == [0, 1]


def test_nothing_is_released_while_the_gate_is_in_another_epoch_or_below_min_in_sync(broker: LogBroker) -> None:
    """R17 and R22, asked again at release."""
    sink = Sink()
    broker.put.handle(sink, [send(1)])
    serving = broker.gate.state
    for change in ({"master_epoch": MasterEpoch(2)}, {"is_min_in_sync": False}):
        broker.gate.state = msgspec.structs.replace(serving, **change)
        broker.put.release(broker.log.max_offset)
        assert sink.writes == []
    broker.gate.state = serving
    broker.put.release(broker.log.max_offset)
    assert sink.answers[1][0] == 0


def test_who_is_not_a_serving_master_appends_nothing_and_says_where_to_go(broker: LogBroker) -> None:
    """S16: Definitely not appended, with the code on which Java clients go elsewhere."""
    sink = Sink()
    broker.gate.state = msgspec.structs.replace(
        broker.gate.state, is_serving=False, master_address="h:1", master_epoch=MasterEpoch(9)
    )
    broker.put.handle(sink, [send(1), send(2)])
    assert set(sink.answers.values()) == {(14, "not-master", "not-appended")}
    fields = sink.writes[0][0].ext_fields
    assert fields is not None
    assert (fields["master"], fields["masterEpoch"]) == ("h:1", "9")
    assert broker.log.max_offset == 0


def test_too_few_members_and_too_many_waiting_are_refused_before_the_append(broker: LogBroker) -> None:
    """Both are definite, and both limits hold again afterwards."""
    sink = Sink()
    serving = broker.gate.state
    broker.gate.state = msgspec.structs.replace(serving, is_min_in_sync=False)
    broker.put.handle(sink, [send(1)])
    broker.gate.state = serving
    assert broker.log.max_offset == 0
    broker.put.handle(sink, [send(n) for n in range(2, 8)])
    end = broker.log.max_offset
    broker.put.handle(sink, [send(8)])
    assert broker.log.max_offset == end
    assert sink.answers == {1: (1, "min-in-sync", "not-appended"), 8: (2, "overloaded", "not-appended")}
    broker.put.release(end)
    broker.put.handle(sink, [send(9)])
    assert broker.log.max_offset > end


def test_r18_duplicates_wait_for_their_original_and_are_appended_once(broker: LogBroker) -> None:
    """In one batch or in several, over another link, before and after the release."""
    sink, other = Sink(), Sink()
    broker.put.handle(sink, [send(1, 0), send(2, 1), send(3, 1)])
    broker.put.handle(other, [send(4, 0)])
    assert (sink.writes, other.writes) == ([], [])
    broker.put.release(broker.log.max_offset)
    assert [each[0] for each in (*sink.answers.values(), *other.answers.values())] == [0, 0, 0, 0]
    broker.put.handle(other, [send(5, 1)])
    assert other.answers[5][0] == 0
    assert [each.queue_offset for each in read_by_the_document(broker.log._files.log_folder)] == [0, 1]
    assert broker.put.counters.duplicates == 3


def test_r18_gaps_old_numbers_and_strangers_are_errors(broker: LogBroker) -> None:
    """With what is known about each."""
    sink = Sink()
    broker.put.handle(sink, [send(1, 5), send(2, 0, epoch=3), send(3, 2, epoch=3), send(4, 1, epoch=2)])
    assert sink.answers == {
        1: (13, "producer-unknown", "unknown"),
        3: (13, "sequence-gap", "not-appended"),
        4: (13, "sequence-old", "unknown"),
    }


def test_an_illegal_message_in_a_batch_is_refused_alone(broker: LogBroker) -> None:
    """The others of the same readable event are appended."""
    sink = Sink()
    raw = encode_send(
        opaque=3, group="g", topic="T", queue_id=0, born_at_ms=1, properties="ROLLCALL_SEQ\x01zz\x02", body=b""
    )  # fmt: skip
    bad = parse_frame(memoryview(raw)[4:])
    assert isinstance(bad, SendRequest)
    broker.put.handle(sink, [send(1), send(2, body=b"x" * 10_001), bad, send(4)])
    assert set(sink.answers) == {2, 3}
    assert {each[1] for each in sink.answers.values()} == {"illegal"}
    broker.put.release(broker.log.max_offset)
    assert set(sink.answers) == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("sys_flag", "properties"),
    [
        (4, ""),
        (12, "K\x01v\x02"),
        *((0, f"K\x01v\x02{name}\x011\x02") for name in ("TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "POP_CK")),
        (0, "TRAN_MSG\x01true\x02"),
    ],
)
def test_what_is_not_served_was_taken_as_an_ordinary_message(broker: LogBroker, sys_flag: int, properties: str) -> None:
    """Alone and in a batch: code 13 with the reason, and nothing of it is in the log."""
    sink = Sink()
    alone = send(1)
    alone.header.extFields.f, alone.header.extFields.i = sys_flag, properties
    body = batch_item(b"m", b"", flag=0) + batch_item(b"n", properties.encode(), flag=0)
    fields = {"b": "T", "e": "2", "f": str(sys_flag), "m": "true"}
    batch = parse_frame(memoryview(encode_frame(Frame(code=320, opaque=2, ext_fields=fields, body=body)))[4:])
    assert isinstance(batch, SendRequest)

    broker.put.handle(sink, [alone, batch])

    illegal = (ClientResult.MESSAGE_ILLEGAL, SendRefusal.ILLEGAL, SendOutcome.NOT_APPENDED)
    assert sink.answers == {1: illegal, 2: illegal}
    assert all("not served" in str(each.remark) for write in sink.writes for each in write)
    assert broker.log.max_offset == 0


@pytest.mark.parametrize(
    "properties", ["DELAY\x010\x02", "MY_DELAY\x013\x02", "TRAN_MSG\x01false\x02", "K\x01TIMER_\x02"]
)
def test_properties_that_only_look_like_it_are_taken(broker: LogBroker, properties: str) -> None:
    """A client writes DELAY 0 for no delay; other names are the sender's own."""
    sink = Sink()
    ordinary = send(1)
    ordinary.header.extFields.i = properties
    broker.put.handle(sink, [ordinary])
    broker.put.release(broker.log.max_offset)
    assert sink.answers[1][0] == ClientResult.PUT_OK


class _Told:
    """Topics as a test says."""

    def __init__(self, row: TopicRow | None, refused: ClientResult = ClientResult.TOPIC_NOT_EXIST) -> None:
        self.row, self.refused, self.asked = row, refused, 0

    def find(self, topic: str) -> TopicRow | None:
        self.asked += 1
        return self.row if topic == "T" else None

    def absence(self, topic: str) -> Refused:
        return Refused(self.refused, f"no topic {topic}")

    def unsure(self) -> Refused | None:
        return Refused(self.refused, "not all") if self.refused is ClientResult.SYSTEM_BUSY else None


@pytest.mark.parametrize(
    ("topics", "answer"),
    [
        (_Told(None), (17, "no-topic", "not-appended")),
        (_Told(None, ClientResult.SYSTEM_BUSY), (2, "overloaded", "not-appended")),
        (
            _Told(TopicRow(read_queue_nums=2, write_queue_nums=3), ClientResult.SYSTEM_BUSY),
            (2, "overloaded", "not-appended"),
        ),
        (_Told(TopicRow(perm=4)), (16, "no-permission", "not-appended")),
        (_Told(TopicRow(read_queue_nums=2, write_queue_nums=3)), (29, "no-queue", "not-appended")),
    ],
)
def test_what_a_topic_does_not_take_is_refused_and_a_duplicate_is_not(
    broker: LogBroker, topics: _Told, answer: tuple[int, str, str]
) -> None:
    """Refused as "not appended", the repeat of a message that is in the log would be a second one (R18)."""
    sink = Sink()
    broker.put.handle(sink, [send(1, 0, queue_id=3)])
    broker.put.topics = topics
    broker.put.handle(sink, [send(2, queue_id=3), send(3, 0, queue_id=3)])
    assert sink.answers == {2: answer}
    broker.put.release(broker.log.max_offset)

    assert {opaque: code for opaque, (code, _, _) in sink.answers.items()} == {1: 0, 2: answer[0], 3: 0}
    assert broker.put.counters.appended == 1


def test_a_broker_that_picks_the_queue_takes_one_that_is_written_to(broker: LogBroker) -> None:
    """And asks once for a batch, not for each of its messages."""
    sink, topics = Sink(), _Told(TopicRow(read_queue_nums=8, write_queue_nums=2))
    broker.put.topics = topics
    for _ in range(2):
        broker.put.handle(sink, [send(opaque, queue_id=-1) for opaque in range(2)])
        broker.put.release(broker.log.max_offset)

    assert topics.asked == 2
    assert sorted(queue for _, queue, _, _ in broker.log.queues.rows()) == [0, 1]


def test_a_batch_message_is_appended_as_a_whole_and_answered_once(broker: LogBroker) -> None:
    """320: all in one segment, ids as a list, offset of the first."""
    sink = Sink()
    body = b"".join(batch_item(b"m%d" % n, b"K\x01v\x02", flag=n) for n in range(3))
    frame = encode_frame(Frame(code=320, opaque=6, ext_fields={"b": "T", "e": "2", "m": "true"}, body=body))
    request = parse_frame(memoryview(frame)[4:])
    assert isinstance(request, SendRequest)
    broker.put.handle(sink, [request])
    broker.put.release(broker.log.max_offset)
    ((answer,),) = sink.writes
    assert answer.ext_fields is not None
    assert answer.ext_fields["queueOffset"] == "0"
    assert len(answer.ext_fields["msgId"].split(",")) == 3
    assert [each.body for each in read_by_the_document(broker.log._files.log_folder)] == [b"m0", b"m1", b"m2"]


def test_a_full_disk_refuses_definitely_and_the_put_path_goes_on(broker: LogBroker) -> None:
    """What found room in the same batch is appended."""
    sink = Sink()
    broker.put.handle(sink, [send(1, 0)])
    # Of two segments: the thread that prepares segments may have made the next one already.
    filler = [send(100 + n, body=b"x" * 9_900) for n in range(52)]
    broker.put.release(broker.log.max_offset)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
    try:
        broker.put.handle(sink, filler)
        broker.put.release(broker.log.max_offset)
        broker.put.handle(sink, [send(2, 1, body=b"y" * 9_900)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert sink.answers[2] == (14, "disk", "not-appended")
    assert broker.put.disk_refused_us > broker.put.released_us > 0, "writes are stopped, by the disk"
    # The thread that prepares segments may have met the full disk too: whoever grows next is told, once.
    for opaque in (3, 4):
        broker.put.handle(sink, [send(opaque, 1, body=b"y" * 9_900)])
        broker.put.release(broker.log.max_offset)
    assert sink.answers[4][0] == 0
    assert broker.put.released_us > broker.put.disk_refused_us


def test_a_fault_in_the_middle_of_a_batch_costs_its_client_and_not_the_log(
    broker: LogBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W36: the run was never ended, and the master refused every send until it was restarted."""
    put_one = PutPath._put_one
    faults = iter((False, True))

    def faulty(path: PutPath, request: SendRequest, waiting: _Waiting) -> tuple[SendRefusal, str] | None:
        if next(faults, False):
            raise LookupError("a fault of ours")
        return put_one(path, request, waiting)

    monkeypatch.setattr(PutPath, "_put_one", faulty)
    with pytest.raises(LookupError):
        broker.put.handle(Sink(), [send(1), send(2)])
    sink = Sink()
    broker.put.handle(sink, [send(3)])
    broker.put.release(broker.log.max_offset)
    assert [code for code, _, _ in sink.answers.values()] == [0]
    assert broker.log.queues.max_offset(b"T", 0) == 2


def test_a_client_that_made_up_queues_filled_the_memory_of_every_replica(broker: LogBroker) -> None:
    """A queue is remembered for ever: at the limit only those that are there take messages, and the refusal says so."""
    sink = Sink()
    broker.put.handle(sink, [send(n, queue_id=n) for n in range(4)])
    broker.put.release(broker.log.max_offset)
    assert [sink.answers[n][0] for n in range(3)] == [0, 0, 0]
    assert sink.answers[3] == (ClientResult.MESSAGE_ILLEGAL, SendRefusal.ILLEGAL, SendOutcome.NOT_APPENDED)
    (remark,) = [each.remark for write in sink.writes for each in write if each.opaque == 3]
    assert remark is not None
    assert "3 are allowed" in remark
    broker.put.handle(sink, [send(5, queue_id=2)])
    broker.put.release(broker.log.max_offset)
    assert sink.answers[5][0] == 0

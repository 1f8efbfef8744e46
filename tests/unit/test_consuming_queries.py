"""Single messages by place and by key: what is given, and what never is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from rollcall_ha.broker.consuming import queries, reading
from rollcall_ha.broker.consuming.queries import PLACES_MAX, Queries
from rollcall_ha.broker.folds.key_index import KeyIndex
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY
from rollcall_ha.node.remoting.frame import Frame, HeaderForm
from tests.support.folded import FoldedLink, FoldedLog

LONG_MAX = (1 << 63) - 1


class Asked:
    """Places by key as an index would give them: all of one hash, whatever their key is."""

    last_ms, last_offset = 77, 99

    def __init__(self) -> None:
        self.places: list[int] = []
        self.broken: OSError | None = None
        self.questions: list[tuple[bytes, bytes, int, int, int]] = []
        self.taken_offset = 1 << 40

    def find(self, topic: bytes, key: bytes, *, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        if self.broken is not None:
            raise self.broken
        self.questions.append((topic, key, begin_ms, end_ms, count_max))
        return self.places[::-1][:count_max]


class Broker:
    """The room of queries with everything around it made up."""

    def __init__(self) -> None:
        self.log, self.index, self.link = FoldedLog(start=1_000), Asked(), FoldedLink()
        self.responders = Queries(cast("KeyIndex", self.index), self.log).responders()

    def put(self, body: bytes = b"hello", *, keys: str = "", unique: str = "", topic: bytes = b"T") -> int:
        properties = f"UNIQ_KEY\x01{unique}\x02KEYS\x01{keys}\x02"
        place = self.log.append(body, key=(topic, 0), properties=properties.encode())
        self.index.places.append(place)
        return place

    def ask(self, code: int, fields: Mapping[str, object], form: HeaderForm = HeaderForm.JSON) -> Frame:
        texts = {name: str(value) for name, value in fields.items()}
        self.responders[code](self.link.connection, Frame(code=code, opaque=5, ext_fields=texts, form=form))
        assert self.link.last.opaque == 5
        return self.link.last

    def view(self, offset: object) -> Frame:
        return self.ask(ClientCode.VIEW_MESSAGE_BY_ID, {"offset": offset})

    def query(self, key: str, **more: object) -> Frame:
        fields: dict[str, object] = {
            "topic": "T",
            "key": key,
            "maxNum": 64,
            "beginTimestamp": 0,
            "endTimestamp": LONG_MAX,
        }
        return self.ask(ClientCode.QUERY_MESSAGE, fields | more)


def places(frame: Frame) -> list[int]:
    """Where the records of an answer say that they are."""
    assert frame.code == 0
    found, at = [], 0
    while at < len(frame.body):
        record = RecordView(memoryview(frame.body), at)
        found.append(int(record.physical_offset))
        at += record.size_bytes
    return found


def test_a_message_is_given_by_the_place_of_its_id() -> None:
    """As it lies in the log, one record."""
    broker = Broker()
    broker.put()
    place = broker.put(b"wanted")
    answer = broker.view(place)

    assert places(answer) == [place]
    assert bytes(RecordView(memoryview(answer.body)).body) == b"wanted"


@pytest.mark.parametrize("offset", [-1, 0, 999, 1_001, 1_050, 1 << 40, LONG_MAX])
def test_what_begins_no_message_is_none(offset: int) -> None:
    """Before the log, within a record, behind its end."""
    broker = Broker()
    broker.put()
    answer = broker.view(offset)

    assert answer.code == ClientResult.SYSTEM_ERROR
    assert answer.remark == f"no message begins at {offset}; messages lie from 1000 to {broker.log.confirm_offset} here"


def test_a_body_that_looks_like_a_record_is_none() -> None:
    """Somebody sends a record of his own making, and asks for its place."""
    broker = Broker()
    place = broker.put()
    inner = bytes(broker.log.data)
    outer = broker.put(b"--" + inner)
    at = broker.log.data.index(inner, outer - broker.log.start) + broker.log.start

    assert RecordView(memoryview(broker.log.data), at - broker.log.start).physical_offset == place
    assert broker.view(at).code == ClientResult.SYSTEM_ERROR


def test_a_record_that_is_not_visible_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are there, confirm lies within it, and the log would give them."""
    broker = Broker()
    place = broker.put(keys="k")
    end = broker.log.confirm_offset
    view = memoryview(bytes(broker.log.data))
    broker.log.record = lambda offset, size: view[offset - 1_000 : offset - 1_000 + size]  # type: ignore[method-assign]

    assert places(broker.query("k")) == [place]
    monkeypatch.setattr(FoldedLog, "confirm_offset", property(lambda _: end - 1))
    assert broker.view(place).code == ClientResult.SYSTEM_ERROR
    assert broker.query("k").code == ClientResult.QUERY_NOT_FOUND


def test_keys_lead_to_the_records_that_have_them_oldest_first() -> None:
    """A message id is a key as well; places of other keys and topics with that hash are no hits."""
    broker = Broker()
    hits = [broker.put(keys="a Aa"), broker.put(keys="Aa", unique="U"), broker.put(unique="Aa")]
    broker.put(keys="BB")
    broker.put(keys="AaAa xAa Aax")
    broker.put(keys="Aa", topic=b"Other")
    answer = broker.query("Aa", beginTimestamp=3, endTimestamp=9)

    assert places(answer) == hits
    assert answer.ext_fields == {"indexLastUpdateTimestamp": "77", "indexLastUpdatePhyoffset": "99"}
    assert broker.index.questions == [(b"T", b"Aa", 3, 9, PLACES_MAX)]


def test_a_question_for_a_message_id_is_answered_by_ids_alone() -> None:
    """Whatever number it asks for."""
    broker = Broker()
    broker.put(keys="U1")
    place = broker.put(unique="U1")

    assert places(broker.query("U1", _UNIQUE_KEY_QUERY="true", maxNum=0)) == [place]
    assert len(places(broker.query("U1", _UNIQUE_KEY_QUERY="false"))) == 2


def test_nothing_is_found_with_the_header_that_clients_read() -> None:
    """An empty key has no record, though many have no key."""
    broker = Broker()
    broker.put()

    for key in ("none", "", "k" * 40_000):
        answer = broker.query(key)
        assert answer.code == ClientResult.QUERY_NOT_FOUND
        assert answer.ext_fields == {"indexLastUpdateTimestamp": "77", "indexLastUpdatePhyoffset": "99"}
        assert len(answer.remark or "") < 250


def test_an_answer_has_the_newest_records_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 64 of them, 32 for a message id, and the bytes of a frame."""
    broker = Broker()
    hits = [broker.put(unique="k") for _ in range(70)]

    assert places(broker.query("k", maxNum=3)) == hits[-3:]
    assert places(broker.query("k", maxNum=1_000_000)) == hits[-64:]
    assert places(broker.query("k", _UNIQUE_KEY_QUERY="true")) == hits[-32:]
    size = hits[1] - hits[0]
    monkeypatch.setattr(queries, "BYTES_MAX", 5 * size)
    assert places(broker.query("k")) == hits[-5:]
    monkeypatch.setattr(queries, "BYTES_MAX", size - 1)
    assert places(broker.query("k")) == hits[-1:]


def test_a_record_that_fits_into_no_frame_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding it would raise into the loop."""
    broker = Broker()
    place = broker.put(b"x" * 500, keys="k")
    monkeypatch.setattr(reading, "RECORD_BYTES_MAX", 400)

    assert broker.view(place).code == ClientResult.SYSTEM_ERROR
    assert broker.query("k").code == ClientResult.QUERY_NOT_FOUND


def test_places_of_records_that_are_gone_are_passed_by() -> None:
    """The log's beginning has moved."""
    broker = Broker()
    broker.put(keys="k")
    kept = broker.put(keys="k")
    broker.log.min_offset = kept

    assert places(broker.query("k")) == [kept]


def test_bytes_that_are_no_record_are_passed_by() -> None:
    """A disk lost them."""
    broker = Broker()
    place = broker.put(keys="k")
    kept = broker.put(keys="k")
    broker.log.data[4:8] = b"\0\0\0\0"

    assert places(broker.query("k")) == [kept]
    broker.log.data[0:4] = b"\xff\xff\xff\xff"
    assert broker.view(place).code == ClientResult.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "topic"),
        ({"topic": "T", "key": "k", "maxNum": "x", "beginTimestamp": "0", "endTimestamp": "1"}, "maxNum"),
        ({"topic": "T", "key": "k", "maxNum": "0", "beginTimestamp": "0", "endTimestamp": "1"}, "maxNum 0; 1 to 64"),
        ({"topic": "T", "key": "k", "maxNum": "1", "endTimestamp": "1"}, "beginTimestamp"),
    ],
)
def test_a_question_that_is_none_is_told_what_it_lacks(fields: dict[str, str], word: str) -> None:
    """In both forms of header."""
    broker = Broker()

    for form in HeaderForm:
        answer = broker.ask(ClientCode.QUERY_MESSAGE, fields, form)
        assert answer.code == ClientResult.SYSTEM_ERROR
        assert word in (answer.remark or "")
    assert broker.view("zz").code == ClientResult.SYSTEM_ERROR
    assert broker.view("9" * 5_000).code == ClientResult.SYSTEM_ERROR


def test_an_index_that_cannot_be_read_is_told() -> None:
    """Not as "there is no such message": that would be a loss, to its sender."""
    broker = Broker()
    broker.index.broken = OSError(5, "Input/output error")
    answer = broker.query("k")

    assert answer.code == ClientResult.SYSTEM_ERROR
    assert "ask another replica" in (answer.remark or "")


def test_what_was_confirmed_a_moment_ago_is_taken_in_first() -> None:
    broker = Broker()
    place = broker.put(keys="k")
    assert places(broker.view(place)) == [place]
    assert broker.log.catch_ups == 1
    broker.query("k")
    assert broker.log.catch_ups == 2


def test_a_message_that_may_be_missing_is_not_said_to_be_nowhere() -> None:
    """After a start the folds are behind: a message that was acknowledged was told to be none."""
    broker = Broker()
    place = broker.put(keys="k")
    broker.log.missing_bytes = 70

    assert places(broker.view(place)) == [place], "it is there, whatever is missing"
    for answer in (broker.view(place + 500), broker.query("k"), broker.query("none")):
        assert answer.code == ClientResult.SYSTEM_BUSY
        assert "70 confirmed bytes are not" in (answer.remark or "")


def test_an_index_that_is_behind_is_not_asked() -> None:
    """It is built anew beside the queues, and would give some of the messages as if they were all."""
    broker = Broker()
    place = broker.put(keys="k")
    broker.index.taken_offset = broker.log.confirm_offset - 1
    answer = broker.query("k")

    assert (answer.code, broker.index.questions) == (ClientResult.SYSTEM_BUSY, [])
    assert "1 confirmed bytes are not" in (answer.remark or "")
    broker.index.taken_offset += 1
    assert places(broker.query("k")) == [place]


def test_nobody_answers_who_wants_no_answer() -> None:
    """One-way questions cost nothing."""
    broker = Broker()
    for code in (ClientCode.VIEW_MESSAGE_BY_ID, ClientCode.QUERY_MESSAGE):
        broker.responders[code](broker.link.connection, Frame(code=code, opaque=1, flag=FLAG_ONE_WAY))

    assert broker.link.frames == []
    assert broker.index.questions == []

"""
Single messages: by their place, of which a message id is made, or by a key: codes 33 and 12.

Here: which records are the answer. Not here: where a key leads (``broker.folds.key_index``).

Rule 1: no record is given that is not visible, or is not the one that was asked for: of its topic, with the very key.
The index knows hashes, and "Aa" and "BB" have the same.
Rule 2: work is bounded: so many places are looked at, so many records and bytes are an answer.
Rule 3: slaves answer as well, as RocketMQ's do: what is below confirm is the same there.
Rule 4: nothing is said to be nowhere while something confirmed is not taken in: to its sender that would be a loss.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rollcall_ha.broker.consuming.reading import copy_record
from rollcall_ha.broker.consuming.replies import Reply, responder
from rollcall_ha.broker.folds.key_index import KeyIndex, keys_of
from rollcall_ha.broker.folds.ports import Folds
from rollcall_ha.broker.handlers.ports import Responder
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import Int64, Name, header_of
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame

MESSAGES_MAX: Final = 64
UNIQUE_MESSAGES_MAX: Final = 32
"""A message id is asked for with any number: RocketMQ takes this one."""
PLACES_MAX: Final = 256
"""More than an answer has: some are of other keys with the same hash, or of records that are gone."""
BYTES_MAX: Final = 4 * 1024 * 1024


class _ViewFields(msgspec.Struct):
    offset: Int64


class _QueryFields(msgspec.Struct, rename="camel"):
    topic: Name
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    is_unique: bool = msgspec.field(default=False, name="_UNIQUE_KEY_QUERY")


_parse_view = header_of(_ViewFields)
_parse_query = header_of(_QueryFields)


class Queries:
    """Questions for messages to one replica. On the loop thread."""

    def __init__(self, keys: KeyIndex, records: Folds) -> None:
        self._keys = keys
        self._records = records

    def responders(self) -> dict[int, Responder]:
        return {
            ClientCode.VIEW_MESSAGE_BY_ID: responder(self._view),
            ClientCode.QUERY_MESSAGE: responder(self._query),
        }

    def _view(self, _: RemotingConnection, frame: Frame) -> Reply | None:
        if frame.is_one_way:
            return None
        offset = _parse_view(frame).offset
        behind_bytes = self._records.catch_up()
        record = copy_record(self._records, offset)
        if record is not None:
            return Reply(body=record)
        if behind_bytes:
            return _behind(behind_bytes)
        there = f"messages lie from {self._records.min_offset} to {self._records.confirm_offset} here"
        return Reply(ClientResult.SYSTEM_ERROR, f"no message begins at {offset}; {there}")

    def _query(self, _: RemotingConnection, frame: Frame) -> Reply | None:
        if frame.is_one_way:
            return None
        asked = _parse_query(frame)
        count = UNIQUE_MESSAGES_MAX if asked.is_unique else min(asked.max_num, MESSAGES_MAX)
        if count < 1:
            return Reply(ClientResult.SYSTEM_ERROR, f"maxNum {asked.max_num}; 1 to {MESSAGES_MAX} are possible")
        behind_bytes = self._records.catch_up() or self._records.confirm_offset - self._keys.taken_offset
        if behind_bytes > 0:
            return _behind(behind_bytes)
        try:
            records = self._found(asked, count)
        except OSError as error:
            return Reply(ClientResult.SYSTEM_ERROR, f"the key index cannot be read now: {error}; ask another replica")
        fields = {
            "indexLastUpdateTimestamp": str(self._keys.last_ms),
            "indexLastUpdatePhyoffset": str(self._keys.last_offset),
        }
        if records:
            return Reply(body=b"".join(records), ext_fields=fields)
        span = f"stored from {asked.begin_timestamp} to {asked.end_timestamp}"
        remark = f"no message of {asked.topic} with the key {asked.key[:99]!r}, {span}"
        return Reply(ClientResult.QUERY_NOT_FOUND, remark, ext_fields=fields)

    def _found(self, asked: _QueryFields, count: int) -> list[bytes]:
        """The newest ``count`` records that are meant and fit into an answer, oldest first. Raises ``OSError``."""
        topic, key = asked.topic.encode(), asked.key.encode()
        begin_ms, end_ms = asked.begin_timestamp, asked.end_timestamp

        def is_meant(record: RecordView) -> bool:
            unique, words = keys_of(record.properties)
            has_key = unique == key or (not asked.is_unique and key in words.split(b" "))
            return has_key and record.topic == topic

        found: list[bytes] = []
        room_bytes = BYTES_MAX
        for offset in (
            self._keys.find(topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=PLACES_MAX) if key else ()
        ):
            record = copy_record(self._records, offset, is_meant)
            if record is None:
                continue
            room_bytes -= len(record)
            # The first one is always taken: one that is larger than the limit would never be found.
            if found and room_bytes < 0:
                break
            found.append(record)
            if len(found) == count:
                break
        return found[::-1]


def _behind(behind_bytes: int) -> Reply:
    remark = f"{behind_bytes} confirmed bytes are not taken in yet; ask again in a moment, or another replica"
    return Reply(ClientResult.SYSTEM_BUSY, remark)

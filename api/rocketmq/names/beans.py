"""
Headers and bodies of RocketMQ's name server (docs/wire.md, name server codes).

Here: one value per header class and bean, the two forms of the body of a 103. Not here: what they mean
(``table``, ``answers``), the header fields' text (``headers``).

Rule 1: fields of bodies stand in alphabetical order and maps are made sorted: what we write is what Java writes for new
clients, keys quoted.
Rule 2: a body that cannot be read raises ``BadNamesBody`` and nothing else, and costs no more than ``BODY_BYTES_MAX``.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

from rollcall_ha.api.broker_port.headers import Header
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.node.remoting.fastjson import quote_keys

BODY_BYTES_MAX = 16 * 1024 * 1024
"""A compressed 103 that unfolds to more is refused."""

BARE_KEYS_BYTES_MAX = 1024 * 1024
"""Of a body's static topics, the keys of so much are put into quotes at most: 8,000 topics, 35 ms."""
_STATIC_TOPICS = b'"topicQueueMapping'
"""How their maps begin: Java writes bare keys in these alone, and after all other topics."""

_MAPPING_SINCE_VERSION = 413
"""Senders from 5.0.0 on write static topics into the compressed form."""


class BadNamesBody(ValueError):
    """The body is not what its code wants; the message says where."""


# --- headers ---------------------------------------------------------------------------------------------------------


class BrokerHeader(Header):
    """104, 322, 901, 904: which broker."""

    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None
    broker_id: int | None = None


class RegisterHeader(BrokerHeader):
    """103. ``broker_id`` is the role id: 0 for a master."""

    ha_server_addr: str | None = None
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool | None = None
    body_crc32: int | None = None
    is_whole: bool | None = None
    """Ours: topics of its set that the table lacks were deleted. Java's brokers leave that to 216."""


class TopicHeader(Header):
    topic: str | None = None
    cluster_name: str | None = None
    cluster: str | None = None


class KeyHeader(Header):
    """Requests for key-value settings (100, 101, 102 and 219) have it."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class RegisteredNameHeader(Header):
    """Answer to 103."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class ChangedHeader(Header):
    changed: bool


class WipedHeader(Header):
    wipe_topic_count: int


class AddedHeader(Header):
    add_topic_count: int


class ValueHeader(Header):
    value: str


# --- bodies ----------------------------------------------------------------------------------------------------------


class Bean(Value):
    """Base of what travels as JSON."""


class DataVersion(Bean):
    """Version of a broker's topic table; ``state_version`` is its masterEpoch."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Bean):
    """One topic of a broker. Unknown keys are ignored."""

    perm: int = 6
    read_queue_nums: int = 16
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class TopicTable(Bean):
    """The topics of one broker."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = msgspec.field(default_factory=dict)


class RegisterBody(Bean):
    """Body of a 103."""

    topic_config_serialize_wrapper: TopicTable = TopicTable()


class QueueData(Bean, kw_only=True):
    """Queues of one topic on one broker set."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int = 0
    write_queue_nums: int


class BrokerData(Bean, omit_defaults=True):
    """Addresses of one broker set by role id: 0 is the master."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str
    enable_acting_master: bool
    zone_name: str | None = None


class TopicRoute(Bean, omit_defaults=True, kw_only=True):
    """Body of the answer to 105."""

    broker_datas: tuple[BrokerData, ...]
    filter_server_table: dict[str, list[str]]
    order_topic_conf: str | None = None
    queue_datas: tuple[QueueData, ...]
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


class QueueDatas(Bean):
    """Body of a 217."""

    queue_datas: tuple[QueueData, ...] = ()


class ClusterInfo(Bean):
    """Body of the answer to 106."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, tuple[str, ...]]


class MemberGroup(Bean):
    """One broker set in the answer to 901."""

    broker_addrs: dict[int, str]
    broker_name: str
    cluster: str


class MemberGroupBody(Bean):
    """Body of the answer to 901."""

    broker_member_group: MemberGroup


class TopicList(Bean, omit_defaults=True, kw_only=True):
    """Body of the answers to 206, 224, 304 and 311 to 313."""

    broker_addr: str | None = None
    topic_list: tuple[str, ...]


class KeyTable(Bean):
    """Body of the answer to 219, and of a 103 if topics with an order are known."""

    table: dict[str, str]


Decoded = TypeVar("Decoded")

_encoder = msgspec.json.Encoder()
_decode_register = msgspec.json.Decoder(RegisterBody)
_decode_version = msgspec.json.Decoder(DataVersion)
_decode_queues = msgspec.json.Decoder(QueueDatas)
_decode_any = msgspec.json.Decoder(Any)


def encode(body: Bean) -> bytes:
    """As JSON; map keys are quoted."""
    return _encoder.encode(body)


def _decode(decoder: msgspec.json.Decoder[Decoded], body: bytes) -> Decoded:
    """JSON as fastjson writes it. Raises ``BadNamesBody``."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Not the topics before them: 20,000 would hold up the loop, and its elections, for 50 ms more.
            start = max(0, body.find(_STATIC_TOPICS))
            if len(body) - start > BARE_KEYS_BYTES_MAX:
                raise BadNamesBody(
                    f"{len(body) - start} bytes of static topics with bare keys, at most {BARE_KEYS_BYTES_MAX} are "
                    "taken: spread the static topics over more broker sets"
                ) from None
            return decoder.decode(body[:start] + quote_keys(body[start:]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadNamesBody(str(error)) from error


def read_version(body: bytes) -> DataVersion:
    """Body of a 322. Raises ``BadNamesBody``."""
    return _decode(_decode_version, body)


def read_queues(body: bytes) -> tuple[QueueData, ...]:
    """Body of a 217. Raises ``BadNamesBody``."""
    return _decode(_decode_queues, body).queue_datas


def read_topics(body: bytes, *, is_compressed: bool, sender_version: int) -> TopicTable:
    """
    The topics in the body of a 103; an empty body has none. Raises ``BadNamesBody``.

    Not read: the form of senders before 3.0.11, which are older than controller mode.
    """
    if not body:
        return TopicTable()
    if not is_compressed:
        return _decode(_decode_register, body).topic_config_serialize_wrapper
    return _Unfolded(_inflate(body)).topics(has_mappings=sender_version >= _MAPPING_SINCE_VERSION)


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    # Bounded: 16 MiB on the wire may unfold to 16 GiB, and the controller that serves names also runs elections.
    try:
        content = inflater.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise BadNamesBody(f"zlib stream: {error}") from error
    if not inflater.eof:
        raise BadNamesBody(f"zlib stream is cut off, or unfolds to more than {BODY_BYTES_MAX} bytes")
    return content


class _Unfolded:
    """Reader of the compressed form: int32 lengths and texts."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._offset = 0

    def topics(self, *, has_mappings: bool) -> TopicTable:
        version = _decode(_decode_version, self._text())
        topics = dict(self._topic() for _ in range(self._count()))
        self._text()  # filter servers, gone since 4.x: skipped, or the next length is read from their text
        mappings: dict[str, Any] = {}
        if has_mappings and self._offset < len(self._content):
            for _ in range(self._count()):
                info = _decode(_decode_any, self._text())
                if isinstance(info, dict) and isinstance(info.get("topic"), str):
                    mappings[info["topic"]] = info
        return TopicTable(data_version=version, topic_config_table=topics, topic_queue_mapping_info_map=mappings)

    def _count(self) -> int:
        end = self._offset + 4
        if end > len(self._content):
            raise BadNamesBody(f"the unfolded body ends at byte {len(self._content)}, inside a length")
        number = int.from_bytes(self._content[self._offset : end], "big", signed=True)
        self._offset = end
        # A negative length would turn the reader back, to the same bytes again and again. Each entry has a length of
        # its own, so more entries than bytes are nonsense too.
        if not 0 <= number <= len(self._content):
            raise BadNamesBody(f"a length of {number} in an unfolded body of {len(self._content)} bytes")
        return number

    def _text(self) -> bytes:
        length = self._count()
        start, self._offset = self._offset, self._offset + length
        if self._offset > len(self._content):
            raise BadNamesBody(f"a text of {length} bytes at {start} in a body of {len(self._content)} bytes")
        return self._content[start : self._offset]

    def _topic(self) -> tuple[str, TopicConfig]:
        text = self._text()
        try:
            name, reads, writes, perm = text.decode().split(" ", 5)[:4]
            return name, TopicConfig(perm=int(perm), read_queue_nums=int(reads), write_queue_nums=int(writes))
        except ValueError as error:
            raise BadNamesBody(f"topic line {text[:80]!r}: {error}") from error

"""
RocketMQ's remoting frame: bytes to values and back, both header forms. Sans-IO.

Here: ``Frame``, ``cut_frames`` (bounded), ``decode_frame``, ``encode_frame``. Not here: where bytes lie until they are
whole frames (``receive``), sockets (``connection``), the meaning of codes.
Layout (docs/wire.md, the frame): int32 length of the rest, 8 bits header form + 24 bits header length, header, body.

Rule 1: nonsense raises ``FrameError`` and nothing else; the owner of the link closes it.
Rule 2: a header field of JSON that is no text becomes one, and null none, as RocketMQ reads them: clients in C++, Lua
and JavaScript write numbers and truth values.
Rule 3: a frame as Java writes it encodes to the bytes that it was decoded from; key order in extFields is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import msgspec

from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY, FLAG_RESPONSE, LANGUAGES

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Largest frame, its length word included (the reference's limit)."""

_FORMS = (0, 1)
_WORDS = struct.Struct(">iI")
_BINARY_FIXED = struct.Struct(">hBhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class FrameError(ValueError):
    """These bytes are not a frame; the message names the field and its value."""


class FrameLengthError(FrameError):
    """The length word is no length of a frame: garbage, or more than is taken here."""


class HeaderForm(IntEnum):
    """How the header is written; answers mirror the request's form."""

    JSON = 0
    BINARY = 1


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One request, response or one-way message."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    language: str = "PYTHON"
    version: int = 0
    form: HeaderForm = HeaderForm.JSON
    rpc_name: str | None = None
    """
    ``serializeTypeCurrentRPC`` of a JSON header: informative, kept so that a frame encodes to the bytes that it came
    from.
    """

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of ours."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the sender wants no answer; an answer would be dropped."""
        return bool(self.flag & FLAG_ONE_WAY)


class _JsonHeaderIn(msgspec.Struct):
    code: int
    opaque: int
    flag: int = 0
    language: str = "OTHER"
    version: int = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 (name on the wire)
    serializeTypeCurrentRPC: str | None = None  # noqa: N815 (name on the wire)


class _JsonHeaderOut(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Fields in the order in which Java writes them: sorted, nulls left out."""

    code: int
    extFields: dict[str, str] | None = None  # noqa: N815 (name on the wire)
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serializeTypeCurrentRPC: str | None = None  # noqa: N815 (name on the wire)
    version: int


class _OtherHeaderIn(_JsonHeaderIn):
    extFields: dict[str, Any] | None = None  # noqa: N815 (name on the wire)


_decode_json_header = msgspec.json.Decoder(_JsonHeaderIn, strict=True).decode
_decode_other_header = msgspec.json.Decoder(_OtherHeaderIn, strict=True).decode
_encode_json_header = msgspec.json.Encoder().encode


def encode_frame(frame: Frame) -> bytes:
    """The frame as bytes. Raises ``FrameError`` if it does not fit into its header form or the largest frame."""
    header = _encode_binary(frame) if frame.form is HeaderForm.BINARY else _encode_json(frame)
    length = 4 + len(header) + len(frame.body)
    if length + 4 > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {length + 4} bytes is larger than the limit of {FRAME_BYTES_MAX}")
    return _WORDS.pack(length, frame.form << 24 | len(header)) + header + frame.body


def _encode_json(frame: Frame) -> bytes:
    return _encode_json_header(
        _JsonHeaderOut(
            code=frame.code,
            flag=frame.flag,
            language=frame.language,
            opaque=frame.opaque,
            version=frame.version,
            extFields=frame.ext_fields,
            remark=frame.remark,
            serializeTypeCurrentRPC=frame.rpc_name,
        )
    )


def _encode_binary(frame: Frame) -> bytes:
    remark = (frame.remark or "").encode()
    fields = b"".join(
        _INT16.pack(len(raw_key)) + raw_key + _INT32.pack(len(raw_value)) + raw_value
        for raw_key, raw_value in ((key.encode(), value.encode()) for key, value in (frame.ext_fields or {}).items())
    )
    try:
        fixed = _BINARY_FIXED.pack(
            frame.code, LANGUAGES.index(frame.language), frame.version, frame.opaque, frame.flag
        )  # fmt: skip
    except (struct.error, ValueError) as error:
        raise FrameError(f"code {frame.code}, language {frame.language!r} do not fit the binary header") from error
    return fixed + _INT32.pack(len(remark)) + remark + _INT32.pack(len(fields)) + fields


def decode_frame(data: bytes | bytearray | memoryview) -> Frame:
    """One frame without its length word. Raises ``FrameError``."""
    view = memoryview(data)
    if len(view) < 4:
        raise FrameError(f"a frame of {len(view)} bytes has no header word")
    word = int.from_bytes(view[:4], "big")
    form, header_length = word >> 24, word & 0xFFFFFF
    if header_length > len(view) - 4:
        raise FrameError(f"header of {header_length} bytes in a frame of {len(view)}")
    header, body = view[4 : 4 + header_length], bytes(view[4 + header_length :])
    if form == HeaderForm.JSON:
        return _decode_json(header, body)
    if form == HeaderForm.BINARY:
        return _decode_binary(header, body)
    raise FrameError(f"unknown header form {form}; 0 (JSON) and 1 (binary) are known")


def _decode_json(header: memoryview, body: bytes) -> Frame:
    try:
        try:
            found = _decode_json_header(header)
        except msgspec.ValidationError:
            # Java's own fields are texts, which is the faster way: rule 2 costs its senders a second look.
            found = _decode_other_header(header)
            if found.extFields is not None:
                found.extFields = {key: _text(value) for key, value in found.extFields.items() if value is not None}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"JSON header: {error}") from error
    return Frame(
        code=found.code,
        opaque=found.opaque,
        flag=found.flag,
        remark=found.remark,
        ext_fields=found.extFields,
        body=body,
        language=found.language,
        version=found.version,
        rpc_name=found.serializeTypeCurrentRPC,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # 1.7e+12 is how a language without whole numbers writes one, and no reader of ours takes it.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode() if not isinstance(value, int) else str(value).lower()


def _decode_binary(header: memoryview, body: bytes) -> Frame:
    try:
        code, language, version, opaque, flag = _BINARY_FIXED.unpack_from(header)
        remark, offset = _take(header, _BINARY_FIXED.size, _INT32)
        raw_fields, offset = _take(header, offset, _INT32)
        if offset != len(header):
            raise FrameError(f"{len(header) - offset} bytes follow the binary header's fields")
        fields = dict(_fields(raw_fields))
        return Frame(
            code=code,
            opaque=opaque,
            flag=flag,
            remark=str(remark, "utf-8") or None,
            ext_fields=fields or None,
            body=body,
            language=LANGUAGES[language] if language < len(LANGUAGES) else "OTHER",
            version=version,
            form=HeaderForm.BINARY,
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"binary header: {error}") from error


def _take(view: memoryview, offset: int, size: struct.Struct) -> tuple[memoryview, int]:
    (length,) = size.unpack_from(view, offset)
    start = offset + size.size
    if not 0 <= length <= len(view) - start:
        raise FrameError(f"a field of {length} bytes where {len(view) - start} are left")
    return view[start : start + length], start + length


def _fields(view: memoryview) -> Iterator[tuple[str, str]]:
    offset = 0
    while offset < len(view):
        key, offset = _take(view, offset, _INT16)
        value, offset = _take(view, offset, _INT32)
        yield str(key, "utf-8"), str(value, "utf-8")


def cut_frames(
    view: memoryview,
    filled: int,
    take: Callable[[memoryview, int], bool],
    *,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    header_bytes_max: int = FRAME_BYTES_MAX,
) -> tuple[int, int]:
    """
    Hand every whole frame in ``view[:filled]`` to ``take``, in order, until it says False.

    ``take`` gets the frame without its length word, and how many bytes there are from its beginning on.

    Returns:
        Bytes of the frames that were taken, and how long the next one is if it is not whole (0: not known).

    Raises:
        FrameError: these bytes are no frames. Errors of ``take`` pass through.
    """
    at, length_max, length_at = 0, frame_bytes_max - 4, _INT32.unpack_from
    while filled - at >= 4:
        (length,) = length_at(view, at)
        if not 4 <= length <= length_max:
            raise FrameLengthError(f"frame length {length} is not within 4 and {length_max}")
        end = at + 4 + length
        if (end > filled or length > header_bytes_max) and filled - at >= 8:
            # As soon as its word is there: else a peer is given ten seconds and 16 MiB for what can never be a frame.
            _validate_header(int.from_bytes(view[at + 4 : at + 8], "big"), length, header_bytes_max)
        if end > filled:
            return at, 4 + length
        if not take(view[at + 4 : end], filled - at):
            break
        at = end
    return at, 0


def _validate_header(word: int, length: int, header_bytes_max: int) -> None:
    form, header_length = word >> 24, word & 0xFFFFFF
    if form not in _FORMS:
        raise FrameError(f"unknown header form {form}; 0 (JSON) and 1 (binary) are known")
    if header_length > min(header_bytes_max, length - 4):
        raise FrameError(f"header of {header_length} bytes in a frame of {length}, at most {header_bytes_max} are read")

"""
Names and texts that callers choose: which of them are taken.

Here: the alphabet, and the check of every text in a command. Not here: where it is asked (REST, sessions and RocketMQ's
codes by ``controller.runtime.service``, 1012, 1013, 1003 and 103 by ``api.rocketmq``, the fleet file by its readers).

Rule 1: a name has 1 to ``NAME_CHARS_MAX`` printable characters, without '/' and without spaces at its ends. RocketMQ
checks names of topics and groups only (``[%|a-zA-Z0-9_-]``), none of brokers and clusters: a host name, a dot and
Chinese are legal there, and here. '/' parts cluster and set in our keys.
Rule 2: any other text (address, zone, register code, reason) is printable and bounded. Printable excludes control
characters, line ends, and those that turn or hide text: names are read on terminals, and kept for ever.
Rule 3: asked at edges, never by apply: which characters are printable is a table of each Python version, and two
controllers would decide differently (C8).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import Refused

NAME_CHARS_MAX = 255
TEXT_CHARS_MAX = 255
REASON_CHARS_MAX = 1_000
SHOWN_CHARS_MAX = 60
"""So much of a refused text stands in its refusal."""

NAME_RULE = f"a name has 1 to {NAME_CHARS_MAX} printable characters, no '/' and no space at its ends"


def name_complaint(what: str, name: str) -> str:
    """Why ``name`` is not taken (rule 1), with the value written out; empty if it is."""
    if 1 <= len(name) <= NAME_CHARS_MAX and name.isprintable() and "/" not in name and name == name.strip():
        return ""
    return f"{what} is {_shown(name)}: {NAME_RULE}"


def text_complaint(what: str, text: str, *, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Why ``text`` is not taken (rule 2), with the value written out; empty if it is."""
    if len(text) <= chars_max and text.isprintable():
        return ""
    return f"{what} is {_shown(text)}: a text has at most {chars_max:,} printable characters"


def key_complaint(key: SetKey) -> str:
    """Why a set of this cluster and name is not taken; empty if it is."""
    return name_complaint("cluster", key.cluster) or name_complaint("broker name", key.name)


def refusal_of_texts(command: msgspec.Struct) -> Refused | None:
    """The refusal of a command whose names or texts are not taken; None: all are."""
    complaint = _complaint("", command)
    if not complaint:
        return None
    hint = "correct it where it is set: the broker's configuration, or the request"
    return Refused(code=RefusalCode.INVALID_ARGUMENT, reason=complaint, hint=hint)


def _complaint(what: str, value: object) -> str:
    """About the first text in ``value`` that is not taken; asked of each command, so without generators."""
    if isinstance(value, str):
        if isinstance(value, Enum):
            return ""
        limit = REASON_CHARS_MAX if what == "reason" else TEXT_CHARS_MAX
        return text_complaint(what.replace("_", " "), value, chars_max=limit)
    if isinstance(value, SetKey):
        return key_complaint(value)
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            if complaint := _complaint(field, getattr(value, field)):
                return complaint
    elif isinstance(value, tuple):
        for one in value:
            if complaint := _complaint(what, one):
                return complaint
    return ""


def _shown(text: str) -> str:
    tail = "" if len(text) <= SHOWN_CHARS_MAX else f"... of {len(text):,} characters"
    return ascii(text[:SHOWN_CHARS_MAX]) + tail

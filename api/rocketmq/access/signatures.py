"""
RocketMQ's signatures of requests: access key and HMAC in the header fields (docs/wire.md, signatures). Pure.

Here: what is signed, and whether a signature is that of a secret. Not here: whose secret it is (``accounts``), what its
owner may do (``rights``).

Rule: the values of all fields but ``Signature`` itself, in the order of their names, and behind them the body. Names,
code and moment are not signed: what was heard on a plain link can be sent again (docs/threats.md).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"


def signed_bytes(fields: Mapping[str, str], body: bytes) -> bytes:
    """What a signature is made of."""
    names = sorted(fields)
    if not "".join(names).isascii():
        # By UTF-16 units, as Java orders text: by code points, a field behind U+FFFF would stand elsewhere.
        names.sort(key=lambda name: name.encode("utf-16-be"))
    return "".join([fields[name] for name in names if name != SIGNATURE]).encode() + body


def signature_of(secret: str, fields: Mapping[str, str], body: bytes) -> str:
    """HMAC-SHA1 in Base64: the only one that RocketMQ's brokers, clients and mqadmin send."""
    return b64encode(hmac.digest(secret.encode(), signed_bytes(fields, body), "sha1")).decode()


def verify_signature(secret: str, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether ``Signature`` of ``fields`` was made with ``secret``. Total; in the same time wherever they differ."""
    # Compared as bytes: compare_digest raises for text that is not ASCII, and a peer chooses this text.
    return hmac.compare_digest(fields.get(SIGNATURE, "").encode(), signature_of(secret, fields, body).encode())

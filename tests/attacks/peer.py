"""
A RocketMQ broker by hand: it signs, registers, beats and is master, as unmodified ones do; and frames that are forged.

Here: signed frames, one broker of a set ``broker-r``. Not here: attacks on it (``rocketmq``), TLS and sockets
(``enemy``). As there, frames and signatures are made by hand: a fault of ours must not hide one of ours.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rollcall_ha.deploy.local.processes import wait_until
from tests.attacks.enemy import READ_BYTES, TIMEOUT_S, context_with, frame

KEYS_FILE = "rocketmq-keys.toml"
SECRETS = {
    "broker-r": "secret of broker-r", "broker-r-2": "secret of another machine", "broker-s": "secret of broker-s",
    "brokers": "secret of every broker", "clients": "secret of clients", "mqadmin": "secret of mqadmin",
}  # fmt: skip
KEYS = """
[accounts.broker-r]
secret = "secret of broker-r"
role = "broker"
sets = ["broker-r"]

[accounts.broker-r-2]
secret = "secret of another machine"
role = "broker"
sets = ["broker-r"]

[accounts.broker-s]
secret = "secret of broker-s"
role = "broker"
sets = ["broker-s"]

[accounts.brokers]
secret = "secret of every broker"
role = "broker"
sets = ["*"]

[accounts.clients]
secret = "secret of clients"
role = "viewer"

[accounts.mqadmin]
secret = "secret of mqadmin"
role = "admin"
"""
SET_NAME = "broker-r"
ADDRESS = "127.0.0.1:39111"
"""Where the broker says that it listens; nobody does."""
BEAT_S = 0.5
NEXT_ID, APPLY_ID, REGISTER, BEAT, ELECT, ALTER, CLEAN = 1012, 1013, 1003, 904, 1002, 1001, 1011


def write_keys(directory: Path) -> None:
    """Access keys of this table in place of those that ``init`` drew; before the controllers start."""
    (directory / KEYS_FILE).write_text(KEYS)


def signature(secret: str, fields: dict[str, str], body: bytes) -> str:
    """RocketMQ's: the values in the order of their names, and the body."""
    text = "".join(fields[name] for name in sorted(fields)).encode() + body
    return base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha1).digest()).decode()


def signed_fields(key: str, fields: dict[str, str], body: bytes = b"", *, secret: str | None = None) -> dict[str, str]:
    """``secret``: another than that of the key."""
    whole = fields | {"AccessKey": key}
    return whole | {"Signature": signature(secret or SECRETS[key], whole, body)}


def signed(key: str, code: int, fields: dict[str, str], body: bytes = b"", *, secret: str | None = None) -> bytes:
    """A frame with access key and signature."""
    return frame(code, body, signed_fields(key, fields, body, secret=secret))


def remarks(data: bytes) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Code, remark and fields of each whole frame."""
    at = 0
    while len(data) - at >= 8:
        length, word = struct.unpack_from(">iI", data, at)
        if len(data) - at < 4 + length:
            return
        header = json.loads(data[at + 8 : at + 8 + (word & 0xFFFFFF)])
        yield int(header["code"]), str(header.get("remark") or ""), header.get("extFields") or {}
        at += 4 + length


def exchange(link: socket.socket, sent: bytes, *, answers: int = 1) -> list[tuple[int, str, dict[str, str]]]:
    """So many answers, or as many as came before the link ended."""
    link.sendall(sent)
    heard = b""
    found: list[tuple[int, str, dict[str, str]]] = []
    while len(found) < answers:
        data = link.recv(READ_BYTES)
        if not data:
            break
        heard += data
        found = list(remarks(heard))
    return found


def reach(address: str, *, source: str = "127.0.0.1") -> socket.socket:
    """A link of TLS without a certificate, as RocketMQ's peers have it; ``source``: the address that it comes from."""
    host, _, port = address.rpartition(":")
    raw = socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=(source, 0))
    return context_with(None).wrap_socket(raw, server_hostname="controller")


@dataclass
class RocketmqMaster:
    """Broker 1 of its set: registered, elected, and beating until ``stop``."""

    address: str
    """Of the leading controller's broker port."""
    others: tuple[str, ...]
    """Those of all other controllers: a heartbeat goes to each, and so one to the leader whoever that is."""
    cluster: str
    fields: dict[str, str] = field(init=False)
    _link: socket.socket = field(init=False)
    _links: list[socket.socket] = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.fields = {"clusterName": self.cluster, "brokerName": SET_NAME}
        self._link = reach(self.address)
        self._ask(APPLY_ID, {"appliedBrokerId": "1", "registerCheckCode": f"{ADDRESS};check"})
        self._ask(REGISTER, {"brokerId": "1", "brokerAddress": ADDRESS})
        self._link.sendall(self.beat())
        self._ask(ELECT, {"brokerId": "1", "designateElect": "false"}, taken=(0, 2011))
        self._links = [self._link, *map(reach, self.others)]
        self._thread = threading.Thread(target=self._beats, daemon=True)
        self._thread.start()

    def beat(self) -> bytes:
        """Its own signed heartbeat."""
        return signed("broker-r", BEAT, self.beat_fields())

    def beat_fields(self) -> dict[str, str]:
        return self.fields | {
            "brokerId": "1", "brokerAddr": ADDRESS, "epoch": "1", "maxOffset": "0", "confirmOffset": "0",
            "heartbeatTimeoutMills": "10000", "electionPriority": "1",
        }  # fmt: skip

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=5)
        for link in self._links:
            link.close()

    def _beats(self) -> None:
        while not self._over.wait(BEAT_S):
            for link in self._links:
                with contextlib.suppress(OSError):
                    link.sendall(self.beat())
                    link.recv(READ_BYTES)

    def _ask(self, code: int, more: dict[str, str], *, taken: tuple[int, ...] = (0,)) -> None:
        last: list[tuple[int, str, dict[str, str]]] = []

        def is_taken() -> bool:
            last[:] = exchange(self._link, signed("broker-r", code, self.fields | more))
            return bool(last) and last[-1][0] in taken

        wait_until(is_taken, deadline_s=10, what=f"{code} of {SET_NAME} is taken, last {last}")

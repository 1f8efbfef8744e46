"""A name service without sockets: brokers that register, controllers whose word can be changed, a clock that is moved."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollcall_ha.api.rocketmq.names.machine import NameAnswer, NameCode, NameMachine, NameRequest
from rollcall_ha.api.rocketmq.names.table import CommittedSet, NameTable
from rollcall_ha.controller.runtime.session_state import ConnectionId

JAVA_VERSION = 479


def topic_config(queues: int = 4, perm: int = 6, flags: int = 0) -> dict[str, Any]:
    return {"perm": perm, "readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": flags}


def register_body(*topics: str, state_version: int = 1, counter: int = 1, **configs: dict[str, Any]) -> bytes:
    """Body of a 103; two system topics are always there, as with real brokers."""
    table = {name: topic_config() for name in ("TBW102", "SELF_TEST_TOPIC", *topics)} | configs
    version = {"counter": counter, "stateVersion": state_version, "timestamp": 1}
    wrapper = {"dataVersion": version, "topicConfigTable": table, "topicQueueMappingInfoMap": {}}
    return msgspec.json.encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def word(master: int | None, *numbers: int, silent: tuple[int, ...] = (), cluster: str = "c1") -> CommittedSet:
    """The controllers know brokers ``numbers`` of a set."""
    return CommittedSet(
        cluster=cluster,
        master=address(master) if master is not None else None,
        ids={address(number): number for number in numbers},
        alive=frozenset(address(number) for number in numbers if number not in silent),
    )


def address(number: int) -> str:
    return f"127.0.0.1:{10_000 + number}"


def ha_address(number: int) -> str:
    return f"127.0.0.1:{11_000 + number}"


@dataclass(slots=True)
class NameWorld:
    words: dict[str, CommittedSet] = field(default_factory=dict)
    now_ms: int = 1_000_000
    service: NameMachine = field(init=False)

    def __post_init__(self) -> None:
        self.service = NameMachine(NameTable(committed_of=self.words.get), settings={"listenPort": "1"})

    @property
    def table(self) -> NameTable:
        return self.service.table

    def ask(self, code: NameCode, body: bytes = b"", *, link: int = 0, **fields: object) -> NameAnswer:
        return self.service.handle(
            NameRequest(
                code=code,
                fields={name: str(value) for name, value in fields.items()},
                body=body,
                version=JAVA_VERSION,
                connection=ConnectionId(link),
                now_ms=self.now_ms,
            )
        )

    def register(
        self,
        number: int,
        *,
        role: int | None = None,
        body: bytes | None = None,
        name: str = "broker-a",
        cluster: str = "c1",
        **fields: object,
    ) -> NameAnswer:
        """A 103 of broker ``number`` on the link of that number, in ``role`` (default: its number)."""
        body = register_body("T") if body is None else body
        return self.ask(
            NameCode.NAMES_REGISTER_BROKER,
            body,
            link=number,
            **{
                "brokerName": name,
                "brokerAddr": address(number),
                "clusterName": cluster,
                "haServerAddr": ha_address(number),
                "brokerId": number if role is None else role,
                "enableActingMaster": "false",
                "compressed": "false",
                "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
            }
            | fields,
        )

    def route(self, topic: str = "T", **fields: Any) -> dict[str, Any] | None:
        """Body of the answer to 105; None = 17."""
        answer = self.ask(NameCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
        if answer.code == 17:
            return None
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found

    def addresses(self, topic: str = "T") -> dict[str, str]:
        """Role id to address in the only broker data of a route."""
        route = self.route(topic)
        assert route is not None
        (data,) = route["brokerDatas"]
        found: dict[str, str] = data["brokerAddrs"]
        return found

"""
Attacks by peers with a good certificate: what a stolen one of one broker, or of a client, can claim.

Here: sessions, HA links, broker operations of REST. Not here: bad certificates (``doors``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

from rollcall_ha.controller.contract.replies import MemberView
from rollcall_ha.node.certified import PeerKind
from tests.attacks.enemy import Papers, answers, context_with, dial, error_of, frame, hear
from tests.attacks.scene import Attack, Scene

REGISTER, HEARTBEAT, ALTER, GOODBYE = 3102, 3103, 3104, 3107
FORBIDDEN = 'rollcall_session_requests_total{request="forbidden"}'
STRANGER = 'rollcall_links_closed_total{port="broker",reason="stranger"}'
NOT_THE_OWNER = 'rollcall_commands_refused_total{code="NOT_THE_OWNER"}'


def stolen(scene: Scene, name: str) -> Papers:
    """Certificate and key of a node, off its machine."""
    assert scene.fleet.file.tls is not None
    folder = scene.fleet.file.path(scene.fleet.file.tls.directory)
    return Papers(folder / f"{name}.pem", folder / f"{name}.key", "")


def replica(scene: Scene, name: str) -> MemberView:
    """What the controllers know of a broker; anybody with a viewer's role can read it."""
    listen = scene.fleet.file.broker(name).listen
    view = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view
    return next(one for one in view.members if one.description.address == listen)


def speaker(scene: Scene, name: str) -> dict[str, Any]:
    """The fields by which messages say whose they are."""
    found = replica(scene, name)
    return {
        "setKey": {"cluster": scene.key.cluster, "name": scene.key.name},
        "brokerId": found.broker_id,
        "incarnation": found.incarnation,
    }


def goodbye(scene: Scene, name: str) -> dict[str, Any]:
    return speaker(scene, name) | {
        "command": "SayGoodbye",
        "sessionOrdinal": 1,
        "cleanMark": {"nonce": "e" * 32, "endOffset": 0},
    }


def heartbeat(scene: Scene, name: str) -> dict[str, Any]:
    return speaker(scene, name) | {
        "sessionOrdinal": 1, "state": "slave", "isReady": True, "knownMasterEpoch": 1, "knownSetEpoch": 1,
        "positions": {"lastEpoch": 1, "maxOffset": 1 << 60, "confirmOffset": 1 << 60},
    }  # fmt: skip


def alter(scene: Scene, name: str) -> dict[str, Any]:
    view = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view
    return speaker(scene, name) | {
        "command": "AlterSyncStateSet", "masterEpoch": view.master_epoch, "seq": 1_000_000,
        "newSet": [view.master], "syncStateSetEpoch": view.sync_state_set_epoch,
    }  # fmt: skip


def register(scene: Scene, name: str, *, epoch: int = 0) -> dict[str, Any]:
    """The process of ``name`` is replaced by one of the enemy, whose log is empty."""
    found = replica(scene, name)
    section = scene.fleet.file.broker(name)
    return speaker(scene, name) | {
        "command": "RegisterReplica", "registerCode": "guessed", "incarnation": "e" * 32, "bootId": "b", "storeId": "s",
        "description": {"address": section.listen, "haAddress": "127.0.0.1:9"},
        "configuration": {"expectedReplicas": 3},
        "positions": {"lastEpoch": -1, "maxOffset": 0, "confirmOffset": 0},
        "replaces": {"incarnation": found.incarnation, "sessionOrdinal": found.session_ordinal},
        **({"stored": {"masterEpoch": epoch}} if epoch else {}),
    }  # fmt: skip


MESSAGES = {REGISTER: register, HEARTBEAT: heartbeat, ALTER: alter, GOODBYE: goodbye}
PATHS = {REGISTER: "replicas", HEARTBEAT: "heartbeat", ALTER: "sync-state-set", GOODBYE: "goodbye"}


def by_session(code: int, thief: str, scene: Scene) -> str:
    """A session's message about the master, with the certificate of ``thief``."""
    body = json.dumps(MESSAGES[code](scene, scene.fleet.master(scene.key))).encode()
    with dial(scene.leader_sessions, context_with(stolen(scene, thief))) as link:
        link.sendall(frame(code, body))
        heard = hear(link)
    if isinstance(heard, str):
        return heard
    return ", ".join(f"code {found}: {json.loads(text).get('reason', '')[:80]}" for found, text in answers(heard))


def another(scene: Scene) -> str:
    """A broker of the same set that is not its master."""
    master = scene.fleet.master(scene.key)
    return next(name for name in scene.fleet.brokers if name != master and name.startswith(scene.key.name))


def by_a_neighbour(code: int, scene: Scene) -> str:
    return by_session(code, another(scene), scene)


def ha_link(scene: Scene, papers: Papers, first: bytes) -> str:
    """What the master's HA port says to ``first``; the mark of the protocol is RCHA."""
    try:
        link = dial(scene.master_ha, context_with(papers))
    except OSError as error:
        return f"alert: {error}"
    with link:
        try:
            link.sendall(first)
        except OSError:
            return "closed"
        heard = hear(link)
        if isinstance(heard, str):
            return heard
        code = error_of(heard)
        return f"{len(heard)} bytes: {heard[:40]!r}" if code is None else f"error {code}"


def handshake_as(scene: Scene, name: str) -> bytes:
    """The native handshake of the slave ``name``, made by the product's codec: its bytes are no secret."""
    from rollcall_ha.controller.contract.ids import FleetIncarnation, Incarnation, LogOffset, MasterEpoch
    from rollcall_ha.ha.codec_native import encode
    from rollcall_ha.ha.frames import Handshake

    view = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view
    found = replica(scene, name)
    assert view.master is not None
    return encode(
        Handshake(
            set_key=scene.key,
            fleet_incarnation=FleetIncarnation(scene.fleet.file.fleet.incarnation),
            master_epoch=view.master_epoch,
            broker_id=found.broker_id,
            incarnation=found.incarnation,
            expected_master=view.master,
            expected_master_incarnation=view.master_incarnation or Incarnation(""),
            is_learner=False,
            last_epoch=MasterEpoch(view.master_epoch),
            max_offset=LogOffset(0),
            segment_bytes=scene.fleet.file.broker(name).segment_bytes,
        )
    )


def forged_slave(scene: Scene) -> str:
    """One slave's certificate, the other slave's id: it would acknowledge what it does not store."""
    master = scene.fleet.master(scene.key)
    one, two = (name for name in scene.fleet.brokers if name != master and name.startswith(scene.key.name))
    return ha_link(scene, stolen(scene, one), handshake_as(scene, two))


def slave_of_another_set(scene: Scene) -> str:
    return ha_link(scene, stolen(scene, "broker-b-1"), handshake_as(scene, another(scene)))


def fence(scene: Scene) -> str:
    """44 bytes, an error frame with a higher epoch in the name of a slave, before any handshake."""
    from rollcall_ha.controller.contract.ids import Incarnation, MasterEpoch
    from rollcall_ha.ha.codec_native import encode
    from rollcall_ha.ha.errors import ErrorCode
    from rollcall_ha.ha.frames import LinkError

    one = another(scene)
    epoch = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view.master_epoch
    wrong = LinkError(
        code=ErrorCode.EPOCH_STALE, master_epoch=MasterEpoch(epoch + 7), expected="", actual="",
        broker_id=replica(scene, one).broker_id, incarnation=Incarnation("e" * 32),
    )  # fmt: skip
    told = ha_link(scene, stolen(scene, one), encode(wrong))
    after = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view
    return f"{told}; epoch {'unchanged' if after.master_epoch == epoch else 'MOVED'}, {after.condition}"


def giant_length(scene: Scene) -> str:
    """A frame that says it has 2 GiB."""
    return ha_link(scene, stolen(scene, another(scene)), b"RCHA" + struct.pack(">I", 1 << 31) + bytes(32))


def stolen_client_on_sessions(scene: Scene) -> str:
    """The certificate of a producer registers a replica."""
    papers = scene.forger.papers(scene.forger.name(PeerKind.CLIENT, "client"))
    body = json.dumps(register(scene, scene.fleet.master(scene.key))).encode()
    with dial(scene.leader_sessions, context_with(papers)) as link:
        link.sendall(frame(REGISTER, body))
        heard = hear(link)
    return heard if isinstance(heard, str) else f"code {answers(heard)[0][0]}"


def attacks() -> Iterator[Attack]:
    """Everything that a thief of one broker's certificate was able to do."""
    names = {REGISTER: "takes over the master's identity", HEARTBEAT: "beats for the master",
             ALTER: "shrinks the SyncStateSet", GOODBYE: "says the master's goodbye"}  # fmt: skip
    for code, what in names.items():
        yield Attack(name=f"certificate of broker-b-1 {what}", port="sessions",
                     run=partial(by_session, code, "broker-b-1"),
                     refused_with=("code 21020",), counted=FORBIDDEN)  # fmt: skip
        # A registration is judged by the owner of the id; whatever else it says, by what has registered on its link.
        is_registration = code == REGISTER
        yield Attack(name=f"certificate of a slave {what}", port="sessions", run=partial(by_a_neighbour, code),
                     refused_with=("code 21019",) if is_registration else ("closed",),
                     counted=NOT_THE_OWNER if is_registration else STRANGER)  # fmt: skip
    yield Attack(name="certificate of a producer registers a replica", port="sessions", run=stolen_client_on_sessions,
                 refused_with=("code 21020",), counted=FORBIDDEN)  # fmt: skip
    yield Attack(name="forged slave: one slave's certificate, another's id", port="ha", run=forged_slave,
                 refused_with=("error 17",), counted='port="ha",reason="certificate"')  # fmt: skip
    yield Attack(name="certificate of another set follows the master", port="ha", run=slave_of_another_set,
                 refused_with=("error 17",), counted='port="ha",reason="certificate"')  # fmt: skip
    yield Attack(name="44 bytes that fence a master", port="ha", run=fence,
                 refused_with=("closed; epoch unchanged, serving",), counted='port="ha",reason="peer"')  # fmt: skip
    yield Attack(name="a frame of 2 GiB", port="ha", run=giant_length, refused_with=("error 1",),
                 counted='port="ha",reason="frame"')  # fmt: skip

"""
Attacks by RocketMQ's own protocol, on a fleet that takes signed peers over TLS (``[rocketmq]``, ``enforcing``).

Here: signatures, replays, claims, rights of keys. Not here: the honest broker that is attacked (``peer``), our own
sessions (``claims``). What RocketMQ's protocol leaves open is a row of its own kind (``is_open``): it is done, and the
row shows how far it goes.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from functools import partial

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, SetKey
from tests.attacks.claims import REGISTER as SESSION_REGISTER
from tests.attacks.claims import register
from tests.attacks.doors import closed_by, replay_of
from tests.attacks.enemy import context_with, frame, tell
from tests.attacks.peer import (
    ADDRESS,
    ALTER,
    APPLY_ID,
    BEAT,
    CLEAN,
    ELECT,
    NEXT_ID,
    REGISTER,
    SET_NAME,
    exchange,
    reach,
    remarks,
    signed,
    signed_fields,
)
from tests.attacks.scene import Attack, Scene

FLOOD = 2_000
UNLISTED = "127.0.0.2"
CHANGING = (100, 102, 103, 104, 205, 216, 217, 318, 322, 327, 904, 1001, 1002, 1003, 1009, 1011, 1013)
"""All of RocketMQ's codes that change something (docs/rocketmq.md, who may come)."""
EVIL = "r\x1b[2J\u202e\r\nOK forged"


def refused(reason: str) -> str:
    """The counter of requests without a right."""
    return f'rollcall_rocketmq_refused_total{{reason="{reason}"}}'


def told(scene: Scene, *frames: bytes, source: str = "127.0.0.1") -> str:
    """What the leader answers to these on one link: each answer once."""
    with reach(scene.leader_sessions, source=source) as link:
        try:
            found = exchange(link, b"".join(frames), answers=len(frames))
        except TimeoutError:
            return "silence"
        except (ssl.SSLError, ConnectionError) as error:
            return f"closed: {error}"
    words = dict.fromkeys(f"code {code}: {remark}" for code, remark, _ in found)
    return f"{len(found)} answers, {'; '.join(words)}" if len(frames) > 1 else "; ".join(words) or "closed"


def state(scene: Scene) -> object:
    """Who is master of the RocketMQ set and of ours, in which epochs, with whom."""
    cluster = ClusterName(scene.fleet.file.fleet.name)
    views = [
        scene.fleet.wait_set(SetKey(cluster, BrokerName(name)), lambda _: True, what="to be known").view
        for name in (SET_NAME, scene.key.name)
    ]
    return [(view.master, view.master_epoch, view.sync_state_set, len(view.members)) for view in views]


def unmoved(attack: Callable[[Scene], str], scene: Scene) -> str:
    """The attack's words, and whether it moved anything."""
    before = state(scene)
    words = attack(scene)
    after = state(scene)
    return f"{words}; {'nothing moved' if before == after else f'NOT unmoved: {before} to {after}'}"


def fields(scene: Scene, **more: str) -> dict[str, str]:
    return {"clusterName": scene.fleet.file.fleet.name, "brokerName": SET_NAME, **more}


# --- signatures ------------------------------------------------------------------------------------------------------


def unsigned(code: int, more: dict[str, str], scene: Scene) -> str:
    return told(scene, frame(code, b"", fields(scene, **more)))


def with_key(key: str, code: int, more: dict[str, str], scene: Scene, *, secret: str | None = None) -> str:
    return told(scene, signed(key, code, fields(scene, **more), secret=secret))


def unknown_key(scene: Scene) -> str:
    return with_key("nobody", ELECT, ORDER, scene, secret="made up")


def altered(scene: Scene) -> str:
    """A good signature over another broker id."""
    sent = signed_fields("mqadmin", fields(scene, **ORDER))
    return told(scene, frame(ELECT, b"", sent | {"brokerId": "2"}))


def flood(scene: Scene) -> str:
    return told(scene, *[signed("mqadmin", ELECT, fields(scene, **ORDER), secret="guessed")] * FLOOD)


# --- replays ---------------------------------------------------------------------------------------------------------


def recorded_link(scene: Scene) -> str:
    """The bytes of a link of mqadmin's, recorded between and sent again."""
    return replay_of(scene.leader_sessions, context_with(None), signed("mqadmin", ELECT, fields(scene, **ORDER)))


def heard_and_plain(scene: Scene) -> str:
    """A signed frame that was heard, by somebody who has no TLS."""
    heard = tell(scene.leader_sessions, None, signed("mqadmin", ELECT, fields(scene, **ORDER)))
    return (
        heard if isinstance(heard, str) else "; ".join(f"code {code}: {remark}" for code, remark, _ in remarks(heard))
    )


def under_another_code(key: str, scene: Scene) -> str:
    """A signed question of a set, sent again as the order to clean it: the code is not signed."""
    return told(scene, frame(CLEAN, b"", signed_fields(key, fields(scene))))


def beat_again(scene: Scene) -> str:
    """The honest broker's own signed heartbeat, twenty times, from a link of the enemy's."""
    assert scene.peer is not None
    return told(scene, *[scene.peer.beat()] * 20)


# --- claims ----------------------------------------------------------------------------------------------------------


def spoken(scene: Scene, name: str, broker_id: int, key: str, *codes: int) -> list[bytes]:
    """What ``key`` says in the name of a replica, on one link: registration, order, question and heartbeat."""
    of_it = {"clusterName": scene.fleet.file.fleet.name, "brokerName": name}
    number = str(broker_id)
    body = json.dumps({"syncStateSet": [broker_id], "syncStateSetEpoch": 1}).encode()
    said: dict[int, tuple[dict[str, str], bytes]] = {
        REGISTER: ({"brokerId": number, "brokerAddress": "127.0.0.1:9"}, b""),
        ALTER: ({"masterBrokerId": number, "masterEpoch": "1"}, body),
        ELECT: ({"brokerId": number, "designateElect": "false"}, b""),
        BEAT: ({"brokerId": number, "brokerAddr": ADDRESS, "epoch": "1", "maxOffset": str(1 << 60),
                "confirmOffset": str(1 << 60), "heartbeatTimeoutMills": "60000", "electionPriority": "1"}, b""),
    }  # fmt: skip
    return [signed(key, code, of_it | said[code][0], said[code][1]) for code in codes]


def claims_another_set(scene: Scene) -> str:
    return told(scene, *spoken(scene, SET_NAME, 1, "broker-s", REGISTER, ALTER, ELECT, BEAT))


def claims_the_same_replica(scene: Scene) -> str:
    """A second key of the set, on a link of its own, while the holder of the claim goes on."""
    return told(scene, *spoken(scene, SET_NAME, 1, "broker-r-2", REGISTER, ALTER, ELECT))


def beats_for_the_same_replica(scene: Scene) -> str:
    return told(scene, *spoken(scene, SET_NAME, 1, "broker-r-2", BEAT))


def claims_one_of_ours(scene: Scene) -> str:
    master = scene.fleet.wait_set(scene.key, lambda _: True, what="to be known").view.master
    assert master is not None
    return told(scene, *spoken(scene, scene.key.name, int(master), "brokers", REGISTER, ALTER, ELECT))


def opens_a_session(scene: Scene) -> str:
    """RocketMQ's door is open to links without a certificate; our sessions are behind it too."""
    body = json.dumps(register(scene, scene.fleet.master(scene.key))).encode()
    return told(scene, frame(SESSION_REGISTER, body))


# --- rights ----------------------------------------------------------------------------------------------------------


def every_changing_code(key: str, scene: Scene) -> str:
    return told(scene, *(signed(key, code, fields(scene, **ORDER)) for code in CHANGING))


def unlisted(scene: Scene) -> str:
    return told(scene, signed("mqadmin", ELECT, fields(scene, **ORDER)), source=UNLISTED)


def evil_names(scene: Scene) -> str:
    """A name with control sequences, by a key that may speak for every set."""
    named = {"clusterName": scene.fleet.file.fleet.name, "brokerName": EVIL}
    return told(
        scene,
        signed("brokers", NEXT_ID, named),
        signed("brokers", APPLY_ID, named | {"appliedBrokerId": "1", "registerCheckCode": "a:1;x"}),
        signed("brokers", REGISTER, named | {"brokerId": "1", "brokerAddress": ADDRESS}),
        signed("brokers", APPLY_ID, fields(scene, appliedBrokerId="2", registerCheckCode=f"{EVIL}:1;x")),
    )


ORDER = {"brokerId": "1", "designateElect": "true"}


def rows() -> Iterator[Attack]:
    row = partial(Attack, port="rocketmq")
    for name, run, words, counter in (
        ("no signature: registers a broker", partial(unsigned, REGISTER, {"brokerId": "1", "brokerAddress": ADDRESS}),
         "code 16: AccessKey and Signature are needed", "not signed"),
        ("no signature: electMaster of mqadmin", partial(unsigned, ELECT, ORDER),
         "code 16: AccessKey and Signature are needed", "not signed"),
        ("wrong secret: electMaster of mqadmin", partial(with_key, "mqadmin", ELECT, ORDER, secret="guessed"),
         "code 16: AccessKey or Signature is wrong", "signature"),
        ("a key that nobody has: the same answer", unknown_key, "code 16: AccessKey or Signature is wrong", "signature"),
        ("a signed frame, altered on its way", altered, "code 16: AccessKey or Signature is wrong", "signature"),
        (f"{FLOOD} wrong signatures on one link", flood,
         f"{FLOOD} answers, code 16: AccessKey or Signature is wrong", "signature"),
        ("an address that is not listed", unlisted, "code 16: 127.0.0.2 is in none of the networks", "address"),
        ("a broker's key says who shall be master", partial(with_key, "broker-r", ELECT, ORDER), "code 16: ", "right"),
        ("a client's signed question, sent again as an order", partial(under_another_code, "clients"),
         "code 16: ", "right"),
        ("a broker's signed question, sent again as an order", partial(under_another_code, "broker-r"),
         "code 16: ", "right"),
        ("another set's key speaks for a broker, in four codes", claims_another_set, "4 answers, code 16: ", "set"),
        ("a client's key on every changing code", partial(every_changing_code, "clients"),
         f"{len(CHANGING)} answers, code 16: ", "right"),
    ):  # fmt: skip
        yield row(name=name, run=run, refused_with=(words,), counted=refused(counter))
    yield row(name="recorded bytes sent again", run=recorded_link, refused_with=("handshake only",),
              counted=closed_by("sessions", "tls"))  # fmt: skip
    yield row(name="a signed frame that was heard, over a plain link", run=heard_and_plain, refused_with=("closed",),
              counted=closed_by("sessions", "tls"))  # fmt: skip
    yield row(name="a second key of the set speaks for its broker", run=claims_the_same_replica,
              refused_with=("3 answers, code 16: ",),
              counted="rollcall_rocketmq_claims_refused_total{")  # fmt: skip
    yield row(name="a second key of the set beats for its broker", run=beats_for_the_same_replica,
              refused_with=("code 0: Heart beat success",),  # answered, and not counted as the broker's
              counted='rollcall_rocketmq_heartbeats_ignored_total{reason="another host or name"}')  # fmt: skip
    yield row(name="a RocketMQ key speaks for a broker of ours", run=claims_one_of_ours,
              refused_with=("3 answers, code 16: ",),
              counted='rollcall_rocketmq_claims_refused_total{code="native"}')  # fmt: skip
    yield row(name="a session of ours over RocketMQ's door", run=opens_a_session, refused_with=("code 21020",),
              counted='rollcall_session_requests_total{request="forbidden"}')  # fmt: skip
    yield row(name="names with control sequences", run=evil_names, refused_with=("4 answers, code 2005: ",))
    yield row(name="a signed heartbeat of the broker itself, sent again", run=beat_again, is_open=True,
              refused_with=("20 answers, code 0: Heart beat success",))  # fmt: skip


def attacks() -> Iterator[Attack]:
    """All of them; after each both sets are as they were."""
    for attack in rows():
        yield Attack(
            name=attack.name, port=attack.port, run=partial(unmoved, attack.run), counted=attack.counted,
            refused_with=attack.refused_with, is_open=attack.is_open,
        )  # fmt: skip

"""
The questions to mqadmin about controllers and name servers: RocketMQ's brokers before its own and before ours.

Here: the state that both sides are brought into, the commands. Not here: how one is asked (``mqadmin``), which
differences are allowed (``allowed.toml``), the comparison (``compare``), mqadmin at our own brokers (``brokers``).

Rule: the same procedure on both sides, the same processes besides controllers and name service.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, wait_until
from tests.interop_java import asking
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet
from tests.interop_java.mqadmin import LOAD, NUMBER, VALUES, Asked, Step, ask, ask_patiently, lines
from tests.interop_java.sides import Side

TOPIC = "orders"
OTHER_TOPIC = "passing"
GROUP = "rollcall-interop-consumer"
MESSAGES = 8
QUEUES = 4
BROKERS = ("b1", "b2", "b3")
RECORDED_FILE = Path(__file__).resolve().parent / "recorded.json"
DEADLINE_S = 180.0
STUCK_S = 45.0
FRESH: tuple[Step, ...] = (
    Step("metadata", "getControllerMetaData -a {any}"),
    Step("set", "getSyncStateSet -a {any} -b {set}"),
    Step("sets of a cluster", "getSyncStateSet -a {any} -c {cluster} -n {ns}"),
    Step("unknown set", "getSyncStateSet -a {any} -b nobody"),
    Step("epochs", "getBrokerEpoch -n {ns} -b {set}", ((r"endOffset=?:?\s*\d+", "endOffset <n>"),)),
    Step("epochs of a cluster", "getBrokerEpoch -n {ns} -c {cluster}", ((r"endOffset=?:?\s*\d+", "endOffset <n>"),)),
    Step("cluster", "clusterList -n {ns}", (LOAD,)),
    Step("broker", "brokerStatus -n {ns} -b {b1}", (VALUES,)),
    Step("topics", "topicList -n {ns}"),
    Step("topics of a cluster", "topicList -n {ns} -c"),
    Step("route", "topicRoute -n {ns} -t {topic}"),
    Step("route of nothing", "topicRoute -n {ns} -t nothing"),
    Step("route as a list", "topicRoute -n {ns} -t {topic} -l"),
    Step("queues", "topicStatus -n {ns} -t {topic}", (NUMBER,)),
    Step("clusters of a topic", "topicClusterList -n {ns} -t {topic}"),
    Step("new topic", "updateTopic -n {ns} -c {cluster} -t {other} -r 2 -w 2"),
    Step("its route", "topicRoute -n {ns} -t {other}"),
    Step("group", "updateSubGroup -n {ns} -c {cluster} -g some-group"),
    Step("progress", "consumerProgress -n {ns} -g {group}", (NUMBER,)),
    Step("progress of all", "consumerProgress -n {ns}", (NUMBER,)),
    Step("consumer's connections", "consumerConnection -n {ns} -g {group}"),
    Step("consume statistics", "brokerConsumeStats -n {ns} -b {b1}", (NUMBER,)),
    Step("broker's settings", "getBrokerConfig -n {ns} -b {b1}", (VALUES,)),
    Step("high availability", "haStatus -n {ns} -c {cluster}", (NUMBER,)),
    Step("message by key", "queryMsgByKey -n {ns} -t {topic} -k key3", (NUMBER,)),
    Step("no write", "wipeWritePerm -n {ns} -b {set}"),
    Step("route without write", "topicRoute -n {ns} -t {topic}"),
    Step("write again", "addWritePerm -n {ns} -b {set}"),
    Step("route with write", "topicRoute -n {ns} -t {topic}"),
    Step("name server's settings", "getNamesrvConfig -n {ns}", (VALUES,)),
    Step("key", "updateKvConfig -n {ns} -s space -k key -v value"),
    Step("no key", "deleteKvConfig -n {ns} -s space -k key"),
    Step("controllers' settings", "getControllerConfig -a {all}", (VALUES,)),
    Step("a controller's new setting", "updateControllerConfig -a {all} -k enableElectUncleanMaster -v false"),
    Step("a forbidden setting", "updateControllerConfig -a {any} -k configStorePath -v x"),
    Step("election of the master", "electMaster -a {any} -b 1 -bn {set} -c {cluster}"),
    Step("election of nobody", "electMaster -a {any} -b 9 -bn {set} -c {cluster}"),
    Step("election in an unknown set", "electMaster -a {any} -b 1 -bn nobody -c {cluster}"),
    Step("cleaning a set with a master", "cleanBrokerMetadata -a {any} -bn {set} -c {cluster}"),
    Step("cleaning a living one", "cleanBrokerMetadata -a {any} -bn {set} -c {cluster} -b 2"),
    Step("cleaning nothing", "cleanBrokerMetadata -a {any} -bn nobody -c {cluster}"),
    Step("topic's end", "deleteTopic -n {ns} -c {cluster} -t {other}"),
)
ELECTION: tuple[Step, ...] = (Step("election", "electMaster -a {any} -b 2 -bn {set} -c {cluster}"),)
ELECTED: tuple[Step, ...] = (
    Step("set after an election", "getSyncStateSet -a {any} -b {set}"),
    Step(
        "epochs after an election",
        "getBrokerEpoch -n {ns} -b {set}",
        ((r"endOffset=?:?\s*\d+", "endOffset <n>"), (r"startOffset=?:?\s*[1-9]\d*", "startOffset <n>")),
    ),
    Step("cluster after an election", "clusterList -n {ns}", (LOAD,)),
    Step("route after an election", "topicRoute -n {ns} -t {topic}"),
    Step("high availability after an election", "haStatus -n {ns} -c {cluster}", (NUMBER,)),
)
DEAD: tuple[Step, ...] = (
    Step("set with a dead one", "getSyncStateSet -a {any} -b {set}"),
    Step("election of a dead one", "electMaster -a {any} -b 3 -bn {set} -c {cluster}"),
    Step("cleaning a dead one", "cleanBrokerMetadata -a {any} -bn {set} -c {cluster} -b 3"),
    Step("set without it", "getSyncStateSet -a {any} -b {set}"),
)
SHORT = frozenset(
    (
        "metadata", "set", "epochs", "cluster", "topics", "route", "route of nothing", "queues", "new topic", "progress",
        "controllers' settings", "a controller's new setting", "a forbidden setting", "election of the master",
        "election in an unknown set", "cleaning a living one", "high availability", "broker", "consume statistics",
        "broker's settings",
    )
)  # fmt: skip
"""What the short form asks, in the first state only."""


def build(side: Side, java: JavaFleet, say: Callable[[str], object]) -> None:
    """Three brokers, a topic with eight messages, a consumer that has read them."""
    for name in BROKERS:
        java.start_broker(name, controllers=side.controllers, namesrv=side.namesrv)
        java.wait_serving(name)
    java.wait_in_sync(side.controllers, len(BROKERS))
    java.wait_route(side.namesrv, master=BROKERS[0], members=len(BROKERS))
    create_topic(java, side.namesrv, TOPIC)
    for number in range(MESSAGES):
        key, body = f"key{number}", f"body {number}"
        where = ("-b", SET, "-i", str(number % QUEUES))
        said = ask_patiently(java, "sendMessage", "-n", side.namesrv, "-t", TOPIC, *where, "-p", body, "-k", key)
        if "SEND_OK" not in said.output:
            raise LauncherError(f"{key} was not sent; mqadmin said {said.output!r}")
    clients = java.directory / "clients"
    java.start_consumer(clients, namesrv=side.namesrv, topic=TOPIC)
    wait_until(lambda: lines(clients / "consumed.tsv") >= MESSAGES, deadline_s=DEADLINE_S, what="all to be consumed")
    # A consumer tells its offsets every 5 s; until then the broker does not know its group.
    wait_until(lambda: _is_told(java, side), deadline_s=DEADLINE_S, what="the consumer's offsets at the broker")
    say(f"{side.name}: three brokers in sync, {MESSAGES} messages consumed")


def interrogate(
    side: Side, java: JavaFleet, say: Callable[[str], object], *, is_short: bool = False
) -> tuple[Asked, ...]:
    """Every command in every state; the fleet is not to be used afterwards."""
    asked: list[Asked] = []

    def ask_all(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if is_short and step.label not in SHORT:
                continue
            asked.append(ask(java, step, _places(side, java), _WORDS, _aliases(side, java, step)))
            say(f"{side.name}: {asked[-1].command}  {asked[-1].seconds:.1f} s")

    ask_all(FRESH)
    if is_short:
        return tuple(asked)
    ask_all(ELECTION)
    java.wait_route(side.namesrv, master=BROKERS[1], members=len(BROKERS))
    _wait_whole(side, java, say)
    ask_all(ELECTED)
    java.kill(BROKERS[2])

    def is_out() -> bool:
        seen = asking.set_of(side.controllers, SET)
        return seen is not None and 3 not in seen.alive and 3 not in seen.in_sync

    wait_until(is_out, deadline_s=DEADLINE_S, what="broker 3 to be dead and out of the SyncStateSet")
    ask_all(DEAD)
    return tuple(asked)


def _is_told(java: JavaFleet, side: Side) -> bool:
    """Whether every message counts as consumed, and the group's retry topic is there."""
    said = java.mqadmin("consumerProgress", "-n", side.namesrv, "-g", GROUP).output
    return "Consume Diff Total: 0" in said and said.count(SET) == QUEUES + 1


def _wait_whole(side: Side, java: JavaFleet, say: Callable[[str], object]) -> None:
    """
    All in sync.

    A Java slave asks its new master for the address to copy from; if that has not entered yet, it is given the old
    master's and copies from there for ever. RocketMQ's controllers leave it so; ours push the address (906).
    """

    def is_whole() -> bool:
        seen = asking.set_of(side.controllers, SET)
        if seen is not None and len(seen.in_sync) == len(BROKERS):
            return True
        java.mqadmin("sendMessage", "-n", side.namesrv, "-t", TOPIC, "-b", SET, "-i", "0", "-p", "more", "-k", "more")
        return False

    with contextlib.suppress(DeadlineError):
        wait_until(is_whole, deadline_s=STUCK_S, what="all brokers to be in sync")
        return
    start_again(side, java, say, after_s=STUCK_S)
    wait_until(is_whole, deadline_s=DEADLINE_S, what="all brokers to be in sync")


def start_again(side: Side, java: JavaFleet, say: Callable[[str], object], *, after_s: float) -> int:
    """Whoever is not in sync is started again, as an operator would; returns how many."""
    seen = asking.set_of(side.controllers, SET)
    stuck = [java.name_of(address) for address in seen.others.values()] if seen is not None else []
    for name in stuck:
        say(f"{side.name}: {name} is not in sync after {after_s:.0f} s; started again")
        java.terminate(name)
        java.restart(name)
    return len(stuck)


def create_topic(java: JavaFleet, namesrv: str, topic: str) -> None:
    """By mqadmin, with four queues; returns when it is routed."""
    ask_patiently(java, "updateTopic", "-n", namesrv, "-c", CLUSTER, "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
    wait_until(lambda: asking.has_route(namesrv, topic), deadline_s=DEADLINE_S, what=f"a route of {topic}")


_WORDS = {"any": "<controller>", "all": "<controllers>", "ns": "<namesrv>", "b1": "<b1>"}


def _places(side: Side, java: JavaFleet) -> dict[str, str]:
    return {
        "any": side.controllers.split(";")[0],
        "all": side.controllers,
        "ns": side.namesrv,
        "b1": java.address("b1"),
        "set": SET,
        "cluster": CLUSTER,
        "topic": TOPIC,
        "other": OTHER_TOPIC,
        "group": GROUP,
    }


def _aliases(side: Side, java: JavaFleet, step: Step) -> dict[str, str]:
    """Address -> what it is called in a comparison; here a controller may be a name server too: what it was asked as."""
    found = dict.fromkeys(side.controllers.split(";"), "<controller>")
    if "{ns}" in step.words:
        found |= dict.fromkeys(side.namesrv.split(";"), "<namesrv>")
    for name in BROKERS:
        host, _, port = java.address(name).partition(":")
        found[f"{host}:{port}"] = f"<{name}>"
        found[f"{host}:{int(port) + 1}"] = f"<{name} ha>"
        found[f"{host}:{int(port) - 2}"] = f"<{name} fast>"
        found[str(java.data(name))] = f"<{name} data>"
    return found


def record(asked: Sequence[Asked]) -> None:
    """Keep what was heard before RocketMQ's own, for comparisons that have no time to ask it."""
    RECORDED_FILE.write_bytes(msgspec.json.format(msgspec.json.encode(asked), indent=1) + b"\n")


def recorded() -> tuple[Asked, ...]:
    """What ``record`` kept."""
    return msgspec.json.decode(RECORDED_FILE.read_bytes(), type=tuple[Asked, ...])

"""
What RocketMQ's own admin tool says, put into words that can be compared: which commands, in which state, normalised.

Here: the state that both sides are brought into, the commands, what of their output is noise. Not here: which
differences are allowed (``allowed.toml``), the comparison (``compare``).

Rule 1: the same procedure on both sides, the same processes besides controllers and name service.
Rule 2: noise is what differs between two runs on the same side: addresses, pids, times, rates, sizes. Nothing else is
taken out; order of lines is not compared, because RocketMQ prints from hash maps.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, wait_until
from tests.interop_java import asking
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet, Said
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
TRIES_MAX = 4
TIMEOUTS = ("RemotingTimeoutException", "RemotingConnectException", "RemotingSendRequestException")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One command and what it printed."""

    label: str
    command: str
    """As typed, with names in place of addresses."""
    output: str
    """Normalised."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    label: str
    words: str
    noise: tuple[tuple[str, str], ...] = ()
    """(pattern, replacement) of this command alone."""


_NUMBER = (r"(?<![\w<.-])-?\d+(?:\.\d+)?%?(?![\w>])", "<n>")
_VALUES = (r"(?m)^(\s*[^=:\s][^=:]*[:=]).*$", r"\1 <value>")
_LOAD = (r"(V\w+) .* (true|false)\b", r"\1 <load> \2")
FRESH: tuple[Step, ...] = (
    Step("metadata", "getControllerMetaData -a {any}"),
    Step("set", "getSyncStateSet -a {any} -b {set}"),
    Step("sets of a cluster", "getSyncStateSet -a {any} -c {cluster} -n {ns}"),
    Step("unknown set", "getSyncStateSet -a {any} -b nobody"),
    Step("epochs", "getBrokerEpoch -n {ns} -b {set}", ((r"endOffset=?:?\s*\d+", "endOffset <n>"),)),
    Step("epochs of a cluster", "getBrokerEpoch -n {ns} -c {cluster}", ((r"endOffset=?:?\s*\d+", "endOffset <n>"),)),
    Step("cluster", "clusterList -n {ns}", (_LOAD,)),
    Step("broker", "brokerStatus -n {ns} -b {b1}", (_VALUES,)),
    Step("topics", "topicList -n {ns}"),
    Step("topics of a cluster", "topicList -n {ns} -c"),
    Step("route", "topicRoute -n {ns} -t {topic}"),
    Step("route of nothing", "topicRoute -n {ns} -t nothing"),
    Step("route as a list", "topicRoute -n {ns} -t {topic} -l"),
    Step("queues", "topicStatus -n {ns} -t {topic}", (_NUMBER,)),
    Step("clusters of a topic", "topicClusterList -n {ns} -t {topic}"),
    Step("new topic", "updateTopic -n {ns} -c {cluster} -t {other} -r 2 -w 2"),
    Step("its route", "topicRoute -n {ns} -t {other}"),
    Step("group", "updateSubGroup -n {ns} -c {cluster} -g some-group"),
    Step("progress", "consumerProgress -n {ns} -g {group}", (_NUMBER,)),
    Step("progress of all", "consumerProgress -n {ns}", (_NUMBER,)),
    Step("consumer's connections", "consumerConnection -n {ns} -g {group}"),
    Step("consume statistics", "brokerConsumeStats -n {ns} -b {b1}", (_NUMBER,)),
    Step("broker's settings", "getBrokerConfig -n {ns} -b {b1}", (_VALUES,)),
    Step("high availability", "haStatus -n {ns} -c {cluster}", (_NUMBER,)),
    Step("message by key", "queryMsgByKey -n {ns} -t {topic} -k key3", (_NUMBER,)),
    Step("no write", "wipeWritePerm -n {ns} -b {set}"),
    Step("route without write", "topicRoute -n {ns} -t {topic}"),
    Step("write again", "addWritePerm -n {ns} -b {set}"),
    Step("route with write", "topicRoute -n {ns} -t {topic}"),
    Step("name server's settings", "getNamesrvConfig -n {ns}", (_VALUES,)),
    Step("key", "updateKvConfig -n {ns} -s space -k key -v value"),
    Step("no key", "deleteKvConfig -n {ns} -s space -k key"),
    Step("controllers' settings", "getControllerConfig -a {all}", (_VALUES,)),
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
    Step("cluster after an election", "clusterList -n {ns}", (_LOAD,)),
    Step("route after an election", "topicRoute -n {ns} -t {topic}"),
    Step("high availability after an election", "haStatus -n {ns} -c {cluster}", (_NUMBER,)),
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
    wait_until(lambda: _lines(clients / "consumed.tsv") >= MESSAGES, deadline_s=DEADLINE_S, what="all to be consumed")
    # A consumer tells its offsets every 5 s; until then the broker does not know its group.
    wait_until(lambda: _is_told(java, side), deadline_s=DEADLINE_S, what="the consumer's offsets at the broker")
    say(f"{side.name}: three brokers in sync, {MESSAGES} messages consumed")


def interrogate(
    side: Side, java: JavaFleet, say: Callable[[str], object], *, is_short: bool = False
) -> tuple[Asked, ...]:
    """Every command in every state; the fleet is not to be used afterwards."""
    asked: list[Asked] = []

    def ask(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if is_short and step.label not in SHORT:
                continue
            asked.append(_ask(side, java, step))
            say(f"{side.name}: {asked[-1].command}  {asked[-1].seconds:.1f} s")

    ask(FRESH)
    if is_short:
        return tuple(asked)
    ask(ELECTION)
    java.wait_route(side.namesrv, master=BROKERS[1], members=len(BROKERS))
    _wait_whole(side, java, say)
    ask(ELECTED)
    java.kill(BROKERS[2])

    def is_out() -> bool:
        seen = asking.set_of(side.controllers, SET)
        return seen is not None and 3 not in seen.alive and 3 not in seen.in_sync

    wait_until(is_out, deadline_s=DEADLINE_S, what="broker 3 to be dead and out of the SyncStateSet")
    ask(DEAD)
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


def ask_patiently(java: JavaFleet, *words: str) -> Said:
    """Again, a few times, while mqadmin's own timeout of some seconds was too short for this machine."""
    for _ in range(TRIES_MAX - 1):
        said = java.mqadmin(*words)
        if not any(trouble in said.output for trouble in TIMEOUTS):
            return said
    return java.mqadmin(*words)


def _ask(side: Side, java: JavaFleet, step: Step) -> Asked:
    places = _places(side, java)
    said = ask_patiently(java, *step.words.format(**places).split(" "))
    return Asked(
        label=step.label,
        command=step.words.format(**{key: _WORDS.get(key, value) for key, value in places.items()}),
        output=normalised(said.output, _aliases(side, java, step), step.noise),
        seconds=said.seconds,
    )


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


_COMMON_NOISE: tuple[tuple[str, str], ...] = (
    (r"\d+\.\d+\.\d+\.\d+@\d+(#\d+)?", "<client>"),
    (r"127\.0\.0\.1:\d+", "<peer>"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([,.:]\d+)?", "<time>"),
    (r"\b1[67]\d{11}\b", "<ms>"),
    (r"\b[0-9A-F]{32}\b", "<id>"),
    (r"(?m)^\s*at [\w.$]+\(.*\)$", "<trace>"),
    (r"(?m)^\s*\.\.\. \d+ more$", "<trace>"),
)


def normalised(text: str, aliases: Mapping[str, str], noise: tuple[tuple[str, str], ...] = ()) -> str:
    """Output with what differs between two runs taken out, one space for many, no empty lines."""
    for address in sorted(aliases, key=len, reverse=True):
        text = text.replace(address, aliases[address])
    for pattern, replacement in (*_COMMON_NOISE, *noise):
        text = re.sub(pattern, replacement, text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    traced = [line for line in lines if line]
    return "\n".join(line for at, line in enumerate(traced) if line != "<trace>" or traced[at - 1] != "<trace>")


def _lines(path: object) -> int:
    try:
        with open(str(path), "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def record(asked: Sequence[Asked]) -> None:
    """Keep what was heard before RocketMQ's own, for comparisons that have no time to ask it."""
    RECORDED_FILE.write_bytes(msgspec.json.format(msgspec.json.encode(asked), indent=1) + b"\n")


def recorded() -> tuple[Asked, ...]:
    """What ``record`` kept."""
    return msgspec.json.decode(RECORDED_FILE.read_bytes(), type=tuple[Asked, ...])


def to_stderr(text: str) -> None:
    """Progress."""
    sys.stderr.write(f"    {text}\n")
    sys.stderr.flush()

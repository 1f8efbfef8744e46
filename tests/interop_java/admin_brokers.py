"""
The questions to mqadmin about brokers, topics, groups and messages: RocketMQ's behind its own controllers, and ours.

Here: both sets, the state that they are brought into, the commands, those that are left out and why. Not here: how one is asked
(``mqadmin``), which differences are allowed (``allowed_brokers.toml``), the comparison (``compare``).

Rule 1: the state is made by the same commands and clients, in the same order, on both sides.
Rule 2: every command that mqadmin lists is asked or left out: one that is in neither table is a fault of this program.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.interop_java.admin import BROKERS, DEADLINE_S, QUEUES, TOPIC, create_topic
from tests.interop_java.artifacts import RocketMq
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet
from tests.interop_java.mqadmin import LOAD, VALUES, Asked, Step, ask, ask_patiently, lines
from tests.interop_java.sides import JavaSide, RollcallSide, Side, sides

ALLOWED_FILE = Path(__file__).resolve().parent / "allowed_brokers.toml"
GROUP, ONLINE, PRODUCER = "billing", "shipping", "till"
"""A group that is gone and lags, one that has a member and took all, and a producer that is connected."""
KEYS = 8
FIRST = (
    *(f"key{number}/{'odd' if number % 2 else 'even'}/{number % QUEUES}/0" for number in range(KEYS)),
    "java-again1-run-000000000008/even/0/0",
    "java-dead-run-000000000009/odd/1/0",
    "soon/late/2/1",
    "hours/late/3/18",
)
"""Two that the group refuses, once and always, one delayed by a second and one by two hours."""
TAKEN_BY_GROUP = KEYS + 1 + 2 + 3
"""Lines of its book: the plain ones and the delayed one, the refused once twice, the dead one three times."""
LAG = 3
STORED = KEYS + 3 + LAG

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *(
                "getControllerMetaData",
                "getSyncStateSet",
                "getControllerConfig",
                "updateControllerConfig",
                "electMaster",
            ),
            *("cleanBrokerMetadata", "getNamesrvConfig", "updateNamesrvConfig", "updateKvConfig", "deleteKvConfig"),
            *("wipeWritePerm", "addWritePerm"),
        ),
        "of controllers and name servers: `admin` compares it",
    ),
    **dict.fromkeys(
        (
            *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
            *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
        ),
        "users and ACLs of RocketMQ's brokers: here certificates and access keys of the fleet say who may",
    ),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), "static topics, which Rollcall does not have"),
    **dict.fromkeys(("addBroker", "removeBroker"), "broker containers, which are on neither side"),
    **dict.fromkeys(
        ("exportMetadataInRocksDB", "dumpCompactionLog"), "reads files of a broker's disk, and asks nobody"
    ),
    "startMonitoring": "never ends and prints nothing: it asks what consumerProgress, consumerConnection and consumerStatus ask",
}
"""Command -> why it is not compared here."""

_PLACE = (r"(commitLogOffset=|storeSize=|CommitLog Offset: +|physicOffset=|physicSize=)\d+", r"\1<place>")
"""Places in the log and sizes of records differ with what was stored before, and with the properties of each."""
_SPENT = (r"(spentTimeMills=|rt=)\d+", r"\1<ms>")
_RT = (r"(?m)^(broker-a +\d+ +\w+ +|Avg RT: +)[\d.]+ *$", r"\1<rt>")
_RATES = (r"(?m)^(\S+(?: +\S+)? +\d+) +\d+\.\d\d(?: +\d+\.\d\d)? +\d+ +(?:\d+|NO_CONSUMER) *$", r"\1 <rates>")
_CLUSTER_RT = (r"(?m)^(interop +broker-a +)[\d.]+", r"\1<rt>")
_CLUSTER_RT_END = "2                 0"
"""Of the first line of numbers: two sends, none of which failed."""
_STATE = (
    *(
        (r"@[0-9a-f]{6,8}\b|\$\$Lambda\S+|/0x[0-9a-f]+", "<object>"),
        (r"\b20\d{12,15}\b", "<time>"),
        (r"\d+#\d{8,}", "<instance>"),
    ),
    (r"(?m)^(\S+)(( +\d+\.\d\d){5}) +\d+ *$", r"\1 <rates>"),
)
STEPS: tuple[Step, ...] = (
    # Topics.
    Step("topics", "topicList -n {ns}"),
    Step("topics of a cluster", "topicList -n {ns} -c", shows="shipping"),
    Step("route", "topicRoute -n {ns} -t {topic}"),
    Step("route as a list", "topicRoute -n {ns} -t {topic} -l"),
    Step("route of nothing", "topicRoute -n {ns} -t nothing"),
    Step("queues", "topicStatus -n {ns} -t {topic}"),
    Step("queues of nothing", "topicStatus -n {ns} -t nothing"),
    Step("queues of retries", "topicStatus -n {ns} -t %RETRY%{group}"),
    Step("queues of dead letters", "topicStatus -n {ns} -t %DLQ%{group}"),
    Step("clusters of a topic", "topicClusterList -n {ns} -t {topic}"),
    Step("allocation of queues", "allocateMQ -n {ns} -t {topic} -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    # Brokers.
    Step("cluster", "clusterList -n {ns}", (LOAD,)),
    Step("cluster by name", "clusterList -n {ns} -c {cluster}", (LOAD,)),
    Step("cluster with totals", "clusterList -n {ns} -m"),
    Step("broker", "brokerStatus -n {ns} -b {b1}", (VALUES,)),
    Step("slave", "brokerStatus -n {ns} -b {b2}", (VALUES,)),
    Step("brokers", "brokerStatus -n {ns} -c {cluster}", (VALUES,)),
    Step("settings", "getBrokerConfig -n {ns} -b {b1}", (VALUES,)),
    Step("settings of a cluster", "getBrokerConfig -n {ns} -c {cluster}", (VALUES,)),
    Step("epochs", "getBrokerEpoch -n {ns} -b {set}", ((r"endOffset=?:?\s*\d+", "endOffset <n>"),)),
    Step("high availability", "haStatus -n {ns} -c {cluster}"),
    Step("high availability of a slave", "haStatus -n {ns} -b {b2}"),
    Step("consume statistics", "brokerConsumeStats -n {ns} -b {b1}"),
    Step("consume statistics of ordered groups", "brokerConsumeStats -n {ns} -b {b1} -o true"),
    Step("consume statistics of late groups", "brokerConsumeStats -n {ns} -b {b1} -l 1"),
    Step("statistics", "statsAll -n {ns}", (_RATES,)),
    Step("statistics of a topic", "statsAll -n {ns} -t {topic}", (_RATES,)),
    Step("statistics of active topics", "statsAll -n {ns} -a", (_RATES,)),
    Step("cold reads", "getColdDataFlowCtrInfo -n {ns} -b {b1}"),
    Step("cold reads of a cluster", "getColdDataFlowCtrInfo -n {ns} -c {cluster}"),
    Step("RocksDB to JSON", "rocksDBConfigToJson -n {ns} -c {cluster} -t topics"),
    Step("RocksDB to JSON of a broker", "rocksDBConfigToJson -b {b1} -t topics"),
    Step("RocksDB queues", "checkRocksdbCqWriteProgress -n {ns} -c {cluster}"),
    Step("records of POP", "exportPopRecord -n {ns} -b {b1} -d true"),
    # Groups.
    Step("progress of all", "consumerProgress -n {ns}"),
    Step("progress", "consumerProgress -n {ns} -g {group}"),
    Step("progress of a topic", "consumerProgress -n {ns} -g {group} -t {topic}"),
    Step("progress of a member", "consumerProgress -n {ns} -g {online}"),
    Step("progress with members", "consumerProgress -n {ns} -g {online} -s true"),
    Step("progress of nobody", "consumerProgress -n {ns} -g nobody"),
    Step("links of a group", "consumerConnection -n {ns} -g {online}"),
    Step("links of a group at a broker", "consumerConnection -n {ns} -g {online} -b {b1}"),
    Step("links of an absent group", "consumerConnection -n {ns} -g {group}"),
    Step("links of nobody", "consumerConnection -n {ns} -g nobody"),
    Step("state of members", "consumerStatus -n {ns} -g {online}", _STATE),
    Step("state of a member", "consumerStatus -n {ns} -g {online} -i {client}", _STATE),
    Step("state of an absent group", "consumerStatus -n {ns} -g {group}"),
    Step("settings of a group", "getConsumerConfig -n {ns} -g {group}"),
    Step("settings of nobody", "getConsumerConfig -n {ns} -g nobody"),
    Step("links of producers", "producerConnection -n {ns} -g {producer} -t {topic}"),
    Step("links of no producers", "producerConnection -n {ns} -g nobody -t {topic}"),
    Step("producers", "producer -n {ns} -b {b1}"),
    # Messages.
    Step("message by place", "queryMsgById -n {ns} -t {topic} -i {place}", (_PLACE,)),
    Step("message by id", "queryMsgById -n {ns} -t {topic} -i {unique}", (_PLACE,)),
    Step("message given to a member", "queryMsgById -n {ns} -t {topic} -i {place} -g {online} -d {client}", (_SPENT,)),
    Step("message by key", "queryMsgByKey -n {ns} -t {topic} -k key3", (_PLACE,)),
    Step("message by no key", "queryMsgByKey -n {ns} -t {topic} -k nothing"),
    Step("message by unique key", "queryMsgByUniqueKey -n {ns} -t {topic} -i {unique}", (_PLACE,)),
    Step("messages by unique key", "queryMsgByUniqueKey -n {ns} -t {topic} -i {unique} -a", (_PLACE,)),
    Step(
        "message of a unique key given",
        "queryMsgByUniqueKey -n {ns} -t {topic} -i {unique} -g {online} -d {client}",
        (_SPENT,),
    ),
    Step("message by no unique key", "queryMsgByUniqueKey -n {ns} -t {topic} -i 7F0000010000000000000000000000FF"),
    Step("message by offset", "queryMsgByOffset -n {ns} -t {topic} -b {set} -i 1 -o 1", (_PLACE,)),
    Step("message by an offset too high", "queryMsgByOffset -n {ns} -t {topic} -b {set} -i 1 -o 99"),
    Step("dead letter", "queryMsgByOffset -n {ns} -t %DLQ%{group} -b {set} -i 0 -o 0", (_PLACE,)),
    Step("queue", "queryCq -n {ns} -b {b1} -t {topic} -q 1 -i 0 -c 3", (_PLACE,)),
    Step("queue of a group", "queryCq -n {ns} -b {b1} -t {topic} -q 1 -i 0 -c 3 -g {online}", (_PLACE,)),
    Step("messages", "printMsg -n {ns} -t {topic} -d true", (_PLACE,)),
    Step("messages by tag", "printMsg -n {ns} -t {topic} -d true -s even", (_PLACE,)),
    Step("messages of a queue", "printMsgByQueue -n {ns} -t {topic} -a {set} -i 1 -p true -d true", (_PLACE,)),
    Step("messages of a queue by tag", "printMsgByQueue -n {ns} -t {topic} -a {set} -i 0 -f true", (_PLACE,)),
    Step("messages to consume", "consumeMessage -n {ns} -t {topic} -b {set} -i 1 -o 0 -c 2 -g reader", (_PLACE,)),
    Step("all messages to consume", "consumeMessage -n {ns} -t {topic} -c 20 -g reader", (_PLACE,)),
    Step("traces of none", "queryMsgTraceById -n {ns} -i {unique}"),
    # Files.
    Step("metadata", "exportMetadata -n {ns} -c {cluster} -f {dir}/all", file="{dir}/all/metadata.json"),
    Step("metadata of topics", "exportMetadata -n {ns} -b {b1} -t -f {dir}/topics", file="{dir}/topics/topic.json"),
    Step(
        "metadata of groups",
        "exportMetadata -n {ns} -b {b1} -g -f {dir}/groups",
        file="{dir}/groups/subscriptionGroup.json",
    ),
    Step(
        "settings to a file", "exportConfigs -n {ns} -c {cluster} -f {dir}/configs", file="{dir}/configs/configs.json"
    ),
    Step("metrics to a file", "exportMetrics -n {ns} -c {cluster} -f {dir}/metrics", file="{dir}/metrics/metrics.json"),
    # Orders to topics.
    Step("new topic", "updateTopic -n {ns} -c {cluster} -t passing -r 2 -w 2"),
    Step("its route", "topicRoute -n {ns} -t passing", shows='"perm":6'),
    Step("new topic at a broker", "updateTopic -n {ns} -b {b1} -t alone -r 3 -w 3 -o true"),
    Step("new topic with an attribute", "updateTopic -n {ns} -b {b1} -t typed -a +message.type=DELAY"),
    Step("new topic with a wrong name", "updateTopic -n {ns} -b {b1} -t wrong/name"),
    Step("new topics", "updateTopicList -n {ns} -c {cluster} -f {dir}/topics.json"),
    Step("new topics at a broker", "updateTopicList -n {ns} -b {b1} -f {dir}/topics.json"),
    Step("their route", "topicRoute -n {ns} -t listed-1", shows='"perm":6'),
    Step("no permission to write", "updateTopicPerm -n {ns} -c {cluster} -t passing -p 4"),
    Step("route without permission", "topicRoute -n {ns} -t passing", shows='"perm":4'),
    Step("message without permission", "sendMessage -n {ns} -t passing -p body -b {set} -i 0"),
    Step("permission at a broker", "updateTopicPerm -n {ns} -b {b1} -t passing -p 6"),
    Step("route with permission", "topicRoute -n {ns} -t passing", shows='"perm":6'),
    Step("permission of nothing", "updateTopicPerm -n {ns} -c {cluster} -t nothing -p 6"),
    Step("order of queues", "updateOrderConf -n {ns} -t passing -m put -v {set}:2"),
    Step("order of queues asked", "updateOrderConf -n {ns} -t passing -m get"),
    Step("no order of queues", "updateOrderConf -n {ns} -t passing -m delete"),
    Step("unused topics", "cleanUnusedTopic -n {ns} -c {cluster}"),
    Step("unused topics of a broker", "cleanUnusedTopic -n {ns} -b {b1}"),
    Step("topic's end", "deleteTopic -n {ns} -c {cluster} -t passing"),
    Step("topic's end again", "deleteTopic -n {ns} -c {cluster} -t passing"),
    Step("its route behind its end", "topicRoute -n {ns} -t passing", shows="CODE: 17"),
    # Orders to groups.
    Step("new group", "updateSubGroup -n {ns} -c {cluster} -g paying -r 3 -s true -m false"),
    Step("its settings", "getConsumerConfig -n {ns} -g paying"),
    Step("new group at a broker", "updateSubGroup -n {ns} -b {b1} -g paying -o true -q 2"),
    Step("new groups", "updateSubGroupList -n {ns} -c {cluster} -f {dir}/groups.json"),
    Step("new groups at a broker", "updateSubGroupList -n {ns} -b {b1} -f {dir}/groups.json"),
    Step("settings of a listed group", "getConsumerConfig -n {ns} -g grouped-1"),
    Step("mode of consuming", "setConsumeMode -n {ns} -c {cluster} -t {topic} -g {group} -m PULL"),
    Step("mode of consuming at a broker", "setConsumeMode -n {ns} -b {b1} -t {topic} -g {group} -m POP -q 2"),
    Step("clone of offsets", "cloneGroupOffset -n {ns} -s {group} -d grouped-1 -t {topic}"),
    Step("progress of the clone", "consumerProgress -n {ns} -g grouped-1"),
    Step("group's end", "deleteSubGroup -n {ns} -c {cluster} -g paying -r true"),
    Step("group's end at a broker", "deleteSubGroup -n {ns} -b {b1} -g grouped-2"),
    Step("its settings behind its end", "getConsumerConfig -n {ns} -g paying"),
    # Offsets.
    Step("offsets by time", "resetOffsetByTime -n {ns} -g {group} -t {topic} -s 0"),
    Step("progress behind it", "consumerProgress -n {ns} -g {group} -t {topic}"),
    Step("offset of a queue", "resetOffsetByTime -n {ns} -g {group} -t {topic} -s now -b {b1} -q 1 -o 2"),
    Step("progress behind that", "consumerProgress -n {ns} -g {group} -t {topic}"),
    Step("offsets of all to now", "resetOffsetByTime -n {ns} -g {group} -t {topic} -s now"),
    Step("offsets to the end", "skipAccumulatedMessage -n {ns} -g {group} -t {topic}"),
    Step("progress at the end", "consumerProgress -n {ns} -g {group} -t {topic}"),
    Step("offsets of a member to the end", "skipAccumulatedMessage -n {ns} -g {online} -t {topic}"),
    Step("offsets of nobody", "resetOffsetByTime -n {ns} -g nobody -t {topic} -s now"),
    # Messages by the tool.
    Step("message sent", "sendMessage -n {ns} -t {topic} -p body -k sent -c even -b {set} -i 0", (_PLACE,)),
    Step(
        "message sent to any queue",
        "sendMessage -n {ns} -t {topic} -p body",
        ((r"(?m)^(broker-a)\s+\d", r"\1 <queue>"),),
    ),
    Step("message sent to no queue", "sendMessage -n {ns} -t {topic} -p body -b {set} -i 99"),
    Step(
        "message sent with a trace", "sendMessage -n {ns} -t {topic} -p body -k traced -b {set} -i 0 -m true", (_PLACE,)
    ),
    Step("messages to a broker", "sendMsgStatus -n {ns} -b {set} -c 2", (_SPENT,)),
    Step("answer times", "checkMsgSendRT -n {ns} -t {topic} -a 4", (_RT,)),
    Step("answer times of clusters", "clusterRT -n {ns} -a 2 -i 1 -c {cluster}", (_CLUSTER_RT,), until=_CLUSTER_RT_END),
    # Orders to brokers.
    Step("setting", "updateBrokerConfig -n {ns} -b {b1} -k traceOn -v true"),
    Step("setting of a cluster", "updateBrokerConfig -n {ns} -c {cluster} -k traceOn -v true"),
    Step("forbidden setting", "updateBrokerConfig -n {ns} -b {b1} -k brokerConfigPath -v nowhere"),
    Step("expired queues", "cleanExpiredCQ -n {ns} -b {b1}"),
    Step("expired queues of a cluster", "cleanExpiredCQ -n {ns} -c {cluster}"),
    Step("expired log", "deleteExpiredCommitLog -n {ns} -b {b1}"),
    Step("expired log of a cluster", "deleteExpiredCommitLog -n {ns} -c {cluster}"),
    Step("limit of cold reads", "updateColdDataFlowCtrGroupConfig -n {ns} -b {b1} -g {group} -v 1024"),
    Step("no limit of cold reads", "removeColdDataFlowCtrGroupConfig -n {ns} -b {b1} -g {group}"),
    Step("reading ahead", "setCommitLogReadAheadMode -n {ns} -b {b1} -m 0"),
    Step("flush offset of a slave", "resetMasterFlushOffset -n {ns} -b {b2} -o 0"),
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """One set of three and what stands before it."""

    side: Side
    java: JavaFleet
    """Of clients and mqadmin, on RocketMQ's side of everything."""
    addresses: Mapping[str, str]
    """``b1`` is the master."""


@contextlib.contextmanager
def broker_sides(directory: Path, rocketmq: RocketMq, which: str) -> Iterator[Brokers]:
    """Three brokers of one kind, in sync; all of it is stopped afterwards."""
    if which == JavaSide.name:
        with sides(directory, rocketmq, which) as (side, java):
            for name in BROKERS:
                java.start_broker(name, controllers=side.controllers, namesrv=side.namesrv)
                java.wait_serving(name)
            java.wait_in_sync(side.controllers, len(BROKERS))
            java.wait_route(side.namesrv, master=BROKERS[0], members=len(BROKERS))
            yield Brokers(side, java, {name: java.address(name) for name in BROKERS})
        return
    ours = RollcallSide(directory / "rollcall", sets={SET: len(BROKERS)})
    with JavaFleet(directory / "java", rocketmq) as java:
        try:
            ours.up()
            fleet = ours.fleet
            master = fleet.master(fleet.set_key(SET))
            order = [master, *(name for name in fleet.brokers if name != master)]
            java.wait_route(ours.namesrv, members=len(BROKERS))
            found = zip(BROKERS, (fleet.file.broker(name).listen for name in order), strict=True)
            yield Brokers(ours, java, dict(found))
        finally:
            ours.down()


def build(brokers: Brokers, say: Callable[[str], object]) -> None:
    """A topic with messages of every fate, a group that lags, one that is there, a producer that is connected."""
    side, java, names = brokers.side, brokers.java, brokers.side.namesrv
    clients = java.directory / "clients"
    create_topic(java, names, TOPIC)
    java.start_sender(clients, namesrv=names, group=PRODUCER, topic=TOPIC, messages=FIRST)
    wait_until(
        lambda: lines(clients / "ids.tsv") == len(FIRST), deadline_s=DEADLINE_S, what="the messages to be stored"
    )
    java.start_consumer(clients, namesrv=names, topic=TOPIC, name=GROUP, groups=[(GROUP, TOPIC, "tag", "*")])
    _wait_taken(brokers, GROUP, TAKEN_BY_GROUP)

    def is_buried() -> bool:
        said = java.mqadmin("topicStatus", "-n", names, "-t", f"%DLQ%{GROUP}").output
        return bool(re.search(rf"{SET}\s+0\s+0\s+1\s", said))

    wait_until(is_buried, deadline_s=DEADLINE_S, what="a dead letter")
    wait_until(lambda: _is_told(java, names, GROUP), deadline_s=DEADLINE_S, what=f"the offsets of {GROUP}")
    java.terminate(GROUP)
    for number in range(LAG):
        said = ask_patiently(
            java,
            "sendMessage",
            "-n",
            names,
            "-t",
            TOPIC,
            "-b",
            SET,
            "-i",
            str(number),
            "-p",
            "late",
            "-k",
            f"lag{number}",
        )
        if "SEND_OK" not in said.output:
            raise LauncherError(f"lag{number} was not sent; mqadmin said {said.output!r}")
    java.start_consumer(clients, namesrv=names, topic=TOPIC, name=ONLINE, groups=[(ONLINE, TOPIC, "ordered", "*")])
    _wait_taken(brokers, ONLINE, STORED)
    wait_until(lambda: _is_told(java, names, ONLINE), deadline_s=DEADLINE_S, what=f"the offsets of {ONLINE}")
    folder = _folder(java)
    folder.mkdir(parents=True, exist_ok=True)
    topics = [{"topicName": f"listed-{number}", "readQueueNums": 2, "writeQueueNums": 2} for number in (1, 2)]
    (folder / "topics.json").write_text(json.dumps(topics))
    groups = [{"groupName": f"grouped-{number}", "retryMaxTimes": number} for number in (1, 2)]
    (folder / "groups.json").write_text(json.dumps(groups))
    say(f"{side.name}: {STORED + 1} messages, {GROUP} lags, {ONLINE} has taken all")


def _wait_taken(brokers: Brokers, group: str, count: int) -> None:
    book = brokers.java.directory / "clients" / group / "consumed.tsv"
    wait_until(lambda: lines(book) >= count, deadline_s=DEADLINE_S, what=f"{group} to take {count} messages")
    if lines(book) != count:
        raise LauncherError(f"{group} took {lines(book)} messages instead of {count}")


def _is_told(java: JavaFleet, names: str, group: str) -> bool:
    """Whether the group's offsets at its broker are the ends of its queues."""
    return "Consume Diff Total: 0" in java.mqadmin("consumerProgress", "-n", names, "-g", group).output


def _folder(java: JavaFleet) -> Path:
    return java.directory / "files"


def interrogate(brokers: Brokers, say: Callable[[str], object]) -> tuple[Asked, ...]:
    """Every command; raises ``LauncherError`` if mqadmin lists one that is neither asked nor left out."""
    side, java = brokers.side, brokers.java
    lost = listed(java.mqadmin().output) - {step.words.split()[0] for step in STEPS} - LEFT_OUT.keys()
    if lost:
        raise LauncherError(f"mqadmin has {', '.join(sorted(lost))}: neither asked nor left out")
    places, asked = _places(brokers), []
    for step in STEPS:
        asked.append(ask(java, step, places, _WORDS, _aliases(brokers, places)))
        say(f"{side.name}: {asked[-1].command}  {asked[-1].seconds:.1f} s")
    return tuple(asked)


def listed(output: str) -> set[str]:
    """Commands in what mqadmin prints of itself."""
    found = set(re.findall(r"(?m)^ {3}(\w+) {2,}\S", output))
    if not found:
        raise LauncherError(f"mqadmin lists no command: {output!r}")
    return found


_WORDS = {
    "ns": "<namesrv>",
    "b1": "<b1>",
    "b2": "<b2>",
    "dir": "<files>",
    "client": "<client>",
    "unique": "<id>",
    "place": "<id>",
}


def _places(brokers: Brokers) -> dict[str, str]:
    java, names = brokers.java, brokers.side.namesrv
    ids = [line.split("\t") for line in (java.directory / "clients" / "ids.tsv").read_text().splitlines()]
    unique, place = next((unique, place) for key, unique, place in ids if key == "key3")
    said = java.mqadmin("consumerConnection", "-n", names, "-g", ONLINE).output
    client = re.search(r"\S+@\S+", said)
    if client is None:
        raise LauncherError(f"{ONLINE} has no member; mqadmin said {said!r}")
    own = {
        "topic": TOPIC,
        "group": GROUP,
        "online": ONLINE,
        "producer": PRODUCER,
        "set": SET,
        "cluster": CLUSTER,
        "ns": names,
    }
    own |= {"unique": unique, "place": place, "client": client.group(), "dir": str(_folder(java))}
    return {**brokers.addresses, **own}


def _aliases(brokers: Brokers, places: Mapping[str, str]) -> dict[str, str]:
    found = {**dict.fromkeys(brokers.side.namesrv.split(";"), "<namesrv>"), places["dir"]: "<files>"}
    for name, address in brokers.addresses.items():
        host, _, port = address.partition(":")
        # RocketMQ's own for replication; ours is another one, of the fleet file.
        found |= {address: f"<{name}>", f"{host}:{int(port) + 1}": f"<{name} ha>"}
    return found

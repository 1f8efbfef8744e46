"""
Kafka with KRaft: three brokers and three controllers, processes of their own; one topic of one partition, three replicas.

Here: its processes and settings. Not here: its frames (``kafka_frames``).
"""

from __future__ import annotations

import base64
import secrets
import shutil
import subprocess
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, Processes, free_ports
from tests.interop_java.artifacts import JavaUnavailableError, obtain_jars
from tests.interop_java.fleet import LIGHT_JVM
from tests.perf.field import kafka_frames, programs
from tests.perf.field.links import Links, once
from tests.perf.field.system import BODY, HOST, MEMBERS, Client, Column, Kind, Master, RefusedError, UnavailableError

VERSION = "4.4.0"
POM = Path(__file__).resolve().parent / "pom.xml"
MAIN = "kafka.Kafka"
FORMAT_MAIN = "kafka.tools.StorageTool"
FORMAT_S_MAX = 60.0
HEAP_MIB = 384
TOPIC = "field"
TUNED = (
    "broker.heartbeat.interval.ms=200",
    "broker.session.timeout.ms=1000",
    "controller.quorum.fetch.timeout.ms=1000",
)
"""With elections of 300 ms after 500 ms two controllers that were left chose nobody for a minute."""
LOOK_S = 10.0


def jars() -> Path:
    """Its programs, fetched if need be. Raises ``UnavailableError`` with the reason."""
    try:
        return obtain_jars("kafka", VERSION, POM, whole=f"kafka_2.13-{VERSION}.jar")
    except JavaUnavailableError as error:
        raise UnavailableError(str(error)) from error


def obtain() -> str:
    """Its version. Raises ``UnavailableError``."""
    jars()
    return VERSION


class Writing:
    """Produces one record after the other to the one partition; every replica in sync has it before the answer."""

    def __init__(self) -> None:
        """Nothing is dialled yet."""
        self._links = Links()
        self._produce = kafka_frames.produce(TOPIC, BODY)

    def attempt(self, address: str) -> None:
        with self._links.to(address) as link:
            code = kafka_frames.produced(kafka_frames.ask(link, self._produce), TOPIC)
        if code:
            raise RefusedError(f"error {code}")

    def close(self) -> None:
        self._links.close()


class Kafka:
    """Three brokers and three controllers of Kafka, as a ``System``."""

    def __init__(self, directory: Path, column: Column) -> None:
        """Nothing is started yet."""
        self._directory = directory
        self._tuned = TUNED if column is Column.TUNED else ()
        self._jars = jars()
        self.processes = Processes(directory)
        ports = free_ports(2 * MEMBERS)
        self._controllers = dict(enumerate(ports[:MEMBERS], start=1))
        self._brokers = dict(enumerate(ports[MEMBERS:], start=MEMBERS + 1))
        self._cluster = _uuid()

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._brokers.values())

    def start(self) -> None:
        self._format()
        for number, port in (*self._controllers.items(), *self._brokers.items()):
            argv = self._java(MAIN, str(self._configured(number)))
            self.processes.start(f"k{number}", argv, ports=[(HOST, port)])
        programs.wait_ready(self.processes, self._has_topic, what="a topic with three replicas")
        programs.wait_ready(self.processes, lambda: len(self._seen().in_sync) == MEMBERS, what="three replicas in sync")

    def _format(self) -> None:
        """By Kafka's tool once; further nodes differ in a file of four lines, and a Java for each would cost seconds."""
        nodes = {number: self._directory / f"data{number}" for number in (*self._controllers, *self._brokers)}
        first = min(nodes)
        argv = self._java(FORMAT_MAIN, "format", "-t", self._cluster, "-c", str(self._configured(first)))
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FORMAT_S_MAX, check=False)
        if done.returncode:
            raise LauncherError(f"Kafka's format failed: {(done.stderr or done.stdout).strip()[-500:]}")
        for number, folder in nodes.items():
            if number == first:
                continue
            if number in self._controllers:
                shutil.copytree(nodes[first], folder)
            folder.mkdir(exist_ok=True)
            (folder / "meta.properties").write_text(
                f"version=1\ncluster.id={self._cluster}\nnode.id={number}\ndirectory.id={_uuid()}\n"
            )

    def _configured(self, number: int) -> Path:
        """The properties of a node, written."""
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in self._controllers.items())
        is_controller = number in self._controllers
        role, listener = ("controller", "CONTROLLER") if is_controller else ("broker", "PLAINTEXT")
        port = self._controllers[number] if is_controller else self._brokers[number]
        settings = (
            f"process.roles={role}",
            f"node.id={number}",
            f"controller.quorum.voters={voters}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            f"listeners={listener}://{HOST}:{port}",
            f"log.dirs={self._directory / f'data{number}'}",
            *self._tuned,
        )
        file = self._directory / f"{number}.properties"
        file.write_text("".join(f"{line}\n" for line in settings))
        return file

    def _java(self, main: str, *arguments: str) -> list[str]:
        return ["java", *LIGHT_JVM, f"-Xmx{HEAP_MIB}m", "-cp", f"{self._jars}/*", main, *arguments]

    def _has_topic(self) -> bool:
        """Ask for it; refused as long as fewer than three brokers have registered."""
        with once(self.addresses[0]) as link:
            return kafka_frames.created(kafka_frames.ask(link, kafka_frames.create_topic(TOPIC, MEMBERS)), TOPIC)

    def _seen(self) -> kafka_frames.Seen:
        """What a broker that answers says of the cluster. Raises ``OSError`` if none does."""
        error: OSError = ConnectionRefusedError("no broker was asked")
        for address in self.addresses:
            try:
                with once(address) as link:
                    return kafka_frames.seen(kafka_frames.ask(link, kafka_frames.metadata(TOPIC)))
            except OSError as failed:
                error = failed
        raise error

    def client(self) -> Client:
        return Writing()

    def master(self) -> Master:
        leader = self._seen().leader
        if leader not in self._brokers:
            raise LauncherError(f"the partition has the leader {leader}; brokers are {sorted(self._brokers)}")
        pids = (programs.pid_of(self.processes, f"k{leader}"),)
        return Master(address=f"{HOST}:{self._brokers[leader]}", pids=pids)

    def decider(self) -> tuple[int, ...]:
        with once(self.addresses[0]) as link:
            leader = kafka_frames.quorum_leader(kafka_frames.ask(link, kafka_frames.describe_quorum()))
        if leader not in self._controllers:
            raise LauncherError(f"the quorum has the leader {leader}; controllers are {sorted(self._controllers)}")
        return (programs.pid_of(self.processes, f"k{leader}"),)

    def stop(self) -> None:
        programs.end(self.processes)


def _uuid() -> str:
    """As Kafka writes them; a dash at the beginning would be an option of its tool."""
    return "A" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:]


KIND = Kind(
    name="kafka",
    title="Kafka (KRaft)",
    acknowledged="every replica in sync has it (acks=all)",
    decider="the leader of three controllers, processes of their own",
    settings={
        Column.DEFAULT: "broker.session.timeout.ms 9000, broker.heartbeat.interval.ms 2000",
        Column.TUNED: ", ".join(line.replace("=", " ") for line in TUNED),
    },
    obtain=obtain,
    make=Kafka,
    look_s=LOOK_S,
)

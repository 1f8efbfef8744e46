"""
Controllers that believe access keys alone: unmodified Java brokers and clients sign, mqadmin with four sorts of keys.

Here: the fleet, what mqadmin must hear. Not here: the faults that follow (``story``), signatures themselves
(``api.rocketmq.access``).
Rule: whatever is not RocketMQ's asks with the certificate of the fleet's admin, because nothing else is answered.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.credentials import files_of
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials
from tests.interop_java import asking
from tests.interop_java.artifacts import RocketMq
from tests.interop_java.fleet import CLUSTER, SET, JavaFleet, Keys
from tests.interop_java.mqadmin import ask_patiently
from tests.interop_java.sides import RollcallSide

REFUSED = "CODE: 16"
READS = ("getControllerMetaData -a {any}", "getSyncStateSet -a {any} -b {set}", "clusterList -n {ns}")
ORDERS = ("electMaster -a {any} -b 1 -bn {set} -c {cluster}", "updateKvConfig -n {ns} -s space -k key -v value")


@contextlib.contextmanager
def signed_side(directory: Path, rocketmq: RocketMq) -> Iterator[tuple[RollcallSide, JavaFleet]]:
    """Controllers that are up, and a launcher of Java processes that have the keys; all of it is stopped afterwards."""
    side = RollcallSide(directory / "rollcall", is_signed=True)
    with JavaFleet(directory / "java", rocketmq) as java:
        try:
            fleet = side.found()
            asking.proof = admin_proof(fleet)
            java.keys = keys_of(fleet)
            side.start()
            yield side, java
        finally:
            asking.proof = None
            side.down()


def admin_proof(fleet: Fleet) -> ExpectedPeer:
    """The certificate of the fleet's admin, for the eyes of the test."""
    credentials = Credentials(files_of(fleet.file, "admin"), fleet=fleet.file.fleet.name, name=None)
    return ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.CONTROLLER}))


def keys_of(fleet: Fleet) -> Keys:
    """Those that ``rollcall init`` wrote."""
    section = fleet.file.rocketmq
    assert section is not None
    assert section.credentials is not None
    accounts = tomllib.loads(fleet.file.path(section.credentials).read_text())["accounts"]
    found = {key: (key, str(account["secret"])) for key, account in accounts.items()}
    return Keys(brokers=found["brokers"], clients=found["clients"], mqadmin=found["mqadmin"])


def interrogate(side: RollcallSide, java: JavaFleet, say: Callable[[str], object]) -> tuple[list[str], int]:
    """What mqadmin heard that it should not have, and how many commands it gave."""
    assert java.keys is not None
    admin, clients = java.keys.mqadmin, java.keys.clients
    everything = READS + ORDERS
    wrong: list[str] = []
    count = 0
    # Ours first: an election of the master that reigns changes nothing, and is answered as to anybody.
    for who, key, served in (
        ("its own key", admin, everything),
        ("a client's key", clients, READS),
        ("a wrong secret", (admin[0], clients[1]), ()),
        ("no key", ("", ""), ()),
    ):
        java.sign("mqadmin", key)
        for command in everything:
            words = command.format(any=side.controllers.split(";")[0], ns=side.namesrv, set=SET, cluster=CLUSTER)
            said = ask_patiently(java, *words.split(" ")).output
            is_refused, count = REFUSED in said, count + 1
            if is_refused == (command in served):
                wrong.append(f"mqadmin {command} with {who}: {said[-300:]}")
            say(f"mqadmin with {who}: {command.split(' ')[0]} {'refused' if is_refused else 'served'}")
    java.sign("mqadmin", admin)
    return wrong, count

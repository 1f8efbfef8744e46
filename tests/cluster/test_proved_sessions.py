"""A fleet with certificates, against processes that hold one of them and claim what is another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId
from rollcall_ha.controller.contract.ids import RegisterCode
from rollcall_ha.controller.contract.replies import AnyReply, Refused
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.credentials import broker_name, client_name, credentials_of
from rollcall_ha.node.remoting.asking import BlockingLink
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.support.fleet_story import load

pytestmark = pytest.mark.cluster


class Caller:
    """One who dials ports of the fleet with the certificate of ``name``."""

    def __init__(self, fleet: Fleet, name: CertifiedName) -> None:
        self._fleet = fleet
        credentials = credentials_of(fleet.file, name)
        assert credentials is not None
        self._credentials = credentials

    def link(self, address: str, kind: PeerKind) -> BlockingLink:
        return BlockingLink(address, expected=ExpectedPeer(credentials=self._credentials, kinds=frozenset({kind})))

    def apply_for_an_id_of(self, set_name: str) -> AnyReply:
        """What the leading controller answers; the link comes first to the right port."""
        order = ApplyBrokerId(
            set_key=self._fleet.set_key(set_name), register_code=RegisterCode("0" * 32), address="127.0.0.1:9"
        )
        address = self._fleet.file.controller(self._fleet.leader()).broker
        with self.link(address, PeerKind.CONTROLLER) as link:
            answer = link.ask(RequestCode.SESSION_APPLY_ID, body=msgspec.json.encode(order))
            reply: AnyReply = msgspec.json.decode(answer.body, type=AnyReply)
            hint = msgspec.json.decode(link.ask(RequestCode.FIND_LEADER).body, type=LeaderHint)
            assert hint.leader == self._fleet.leader()
        return reply


def refused_by_all(addresses: list[str], dial: Callable[[str], BlockingLink]) -> None:
    """No answer comes to anything that is asked there."""
    for address in addresses:
        with pytest.raises(OSError), dial(address) as link:
            link.ask(RequestCode.PROBE)


def test_a_certificate_speaks_for_its_own_set_and_the_fleet_goes_on(tmp_path: Path) -> None:
    """A broker of another set, a client and a plain link claim an id, or a listen port; acks come all the while."""
    layout = Layout(controllers=1, sets={"broker-a": 1, "broker-b": 1})
    with Fleet.create(tmp_path / "fleet", layout) as fleet:
        fleet.up()
        of_b = broker_name(fleet.file, "broker-b-1", fleet.file.broker("broker-b-1"))
        listening = [section.listen for section in fleet.file.brokers.values()]
        with load(fleet) as work:
            for name, what in ((of_b, "broker/broker-b/broker-b-1"), (client_name(fleet.file), "client/client")):
                reply = Caller(fleet, name).apply_for_an_id_of("broker-a")
                assert isinstance(reply, Refused)
                assert reply.code is RefusalCode.FORBIDDEN
                assert what in reply.reason
            refused_by_all(listening, BlockingLink)
            client = Caller(fleet, client_name(fleet.file))
            for address in listening:
                with client.link(address, PeerKind.BROKER) as link:
                    assert link.ask(RequestCode.PROBE).code == 0
            refused_by_all(listening, lambda address: client.link(address, PeerKind.CONTROLLER))
            work.wait_more()
        for key in fleet.set_keys():
            status = fleet.set_status(key)
            assert status is not None
            assert len(status.replicas) == 1

"""What a fleet file tells a program of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.broker.client.consumer import Consumer
from rollcall_ha.broker.client.fleet import access_of
from rollcall_ha.broker.client.producer import Producer
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from tests.support.fleet_certs import FleetCertificates

BROKER = '[brokers.{name}]\nset = "{set}"\nlisten = "10.0.0.{number}:10911"\nha = "h:1"\nhealth = "h:2"\ndata = "d"\n'


def fleet_file(folder: Path, *sets: str, fleet: str = "insecure = true\n") -> Path:
    """One broker of each set that is named."""
    brokers = "".join(BROKER.format(name=f"b{n}", set=name, number=n) for n, name in enumerate(sets, start=1))
    file = folder / "rollcall.toml"
    file.write_text(f'version = 1\n[fleet]\nname = "shop"\nincarnation = "i1"\n{fleet}{brokers}')
    return file


def test_a_producer_finds_the_brokers_of_the_only_set(tmp_path: Path) -> None:
    access = access_of(fleet_file(tmp_path, "orders", "orders"))

    assert access.seeds == ("10.0.0.1:10911", "10.0.0.2:10911")
    assert (access.credentials, access.set_key) == (None, "shop/orders")
    assert Producer.from_fleet_file(tmp_path / "rollcall.toml", group="mine").expected is None


def test_a_producer_is_of_one_set(tmp_path: Path) -> None:
    """Two masters would each get a part of its messages."""
    file = fleet_file(tmp_path, "orders", "bills")

    with pytest.raises(ConfigError, match="more than one set; say which by set_name"):
        Producer.from_fleet_file(file)
    with pytest.raises(ConfigError, match=r"'offers'.*its sets: bills, orders"):
        Producer.from_fleet_file(file, set_name="offers")
    assert access_of(file, "bills").seeds == ("10.0.0.2:10911",)
    Consumer.from_fleet_file(file, group="g", topics={"T": "*"})


def test_it_shows_the_certificate_of_a_client(tmp_path: Path) -> None:
    """The folder client of ``rollcall init`` has it; one without says which files are missing."""
    file = fleet_file(tmp_path, "orders", fleet='[tls]\nauthority = "ca.pem"\ndirectory = "."\n')

    with pytest.raises(ConfigError, match=r"client\.pem"):
        access_of(file)

    FleetCertificates(tmp_path, "shop").issue(PeerKind.CLIENT, "client")
    found = access_of(file).credentials

    assert found is not None
    assert found.own.name.name == "client"

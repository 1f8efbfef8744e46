"""The ready hooks of ``deploy/hooks``: the address that follows a master, tried between machines, and the DNS name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.deploy.hooks import dns
from rollcall_ha.deploy.hooks.vip import Move, move_for
from rollcall_ha.deploy.local.machines import Machines, MachinesError
from rollcall_ha.deploy.local.processes import our_environment, python_module, wait_until
from rollcall_ha.hooks.settings import load

ROOT = Path(__file__).parents[2]
SET = "fleet/broker-a"


def serving(address: str | None, *, type_: str = "master-serving", name: str = "broker-a") -> dict[str, Any]:
    """The part of the payload that the examples read; its fields are held against the page by test_hooks_notices."""
    return {"type": type_, "setKey": {"cluster": "fleet", "name": name}, "data": {"toAddress": address}}


def test_the_example_of_the_settings_is_taken() -> None:
    made = load(ROOT / "deploy" / "hooks" / "hooks.toml")
    assert [hook.name for hook in made.hooks] == ["pager", "vip"]
    assert made.hooks[1].command[3] == "rollcall_ha.deploy.hooks.vip"


def test_the_address_is_taken_where_the_master_is_and_dropped_elsewhere() -> None:
    here = {"10.0.0.1", "127.0.0.1"}
    assert move_for(serving("10.0.0.1:911"), SET, here) is Move.TAKE
    assert move_for(serving("10.0.0.2:911"), SET, here) is Move.DROP
    assert move_for(serving(None), SET, here) is Move.DROP
    assert move_for(serving("10.0.0.1:911", name="broker-b"), SET, here) is Move.NOTHING
    assert move_for(serving("10.0.0.1:911", type_="master-elected"), SET, here) is Move.NOTHING
    assert move_for({"type": "test", "setKey": None, "data": {"text": ""}}, SET, here) is Move.NOTHING


@pytest.mark.root
@pytest.mark.slow
def test_the_address_moves_between_machines_and_a_neighbour_follows_at_once() -> None:
    """Its neighbour asked where the address is, and remembers the old machine until it is told."""
    if shutil.which("ping") is None:
        pytest.skip("no ping on the PATH: apt-get install iputils-ping")
    try:
        with Machines(("m1", "m2", "client")) as machines:
            move_there_and_back(machines)
    except MachinesError as error:
        pytest.skip(str(error))


def move_there_and_back(machines: Machines) -> None:
    address = "10.123.45.67/32"
    host = address.partition("/")[0]

    def on(name: str, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            machines.inside(name, argv),
            input=given,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=our_environment(),
        )

    def told(master: str) -> None:
        hook = python_module("rollcall_ha.deploy.hooks.vip", "--set", SET, "--address", address, "--device", "eth0")
        for name in ("m1", "m2"):
            done = on(name, *hook, given=json.dumps(serving(f"{machines.address(master)}:911")))
            assert done.returncode == 0, done.stderr

    def holder() -> list[str]:
        return [name for name in ("m1", "m2") if f"inet {host}" in on(name, "ip", "address", "show", "eth0").stdout]

    def mac(name: str) -> str:
        found: str = json.loads(on(name, "ip", "-json", "link", "show", "eth0").stdout)[0]["address"]
        return found

    assert on("client", "ip", "route", "add", host, "dev", "eth0").returncode == 0
    for master in ("m1", "m2", "m1"):
        told(master)
        assert holder() == [master]
        if master == "m1" and f"lladdr {mac('m2')}" not in on("client", "ip", "neigh", "show", host).stdout:
            assert on("client", "ping", "-c", "1", "-W", "5", host).returncode == 0
            continue
        wait_until(
            lambda name=master: f"lladdr {mac(name)}" in on("client", "ip", "neigh", "show", host).stdout,  # type: ignore[misc]
            deadline_s=30,
            what=f"the neighbour to know that {host} is on {master}",
        )
        assert on("client", "ping", "-c", "1", "-W", "5", host).returncode == 0


def test_the_name_is_changed_in_one_update_and_for_its_set_alone() -> None:
    told = dns.update_for(serving("10.0.0.2:911"), of_set=SET, name="a.example.", server="10.0.0.53", ttl_s=10)
    assert told == (
        "server 10.0.0.53\nupdate delete a.example. A\nupdate delete a.example. AAAA\n"
        "update add a.example. 10 A 10.0.0.2\nsend\n"
    )
    six = dns.update_for(serving("[2001:db8::2]:911"), of_set=SET, name="a.example.", server="::1", ttl_s=10)
    assert six is not None
    assert "10 AAAA 2001:db8::2" in six
    assert dns.update_for(serving("10.0.0.2:911"), of_set="fleet/b", name="a.", server="s", ttl_s=1) is None
    with pytest.raises(ValueError, match="does not appear to be"):
        dns.update_for(serving(None), of_set=SET, name="a.", server="s", ttl_s=1)


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (2, 1)])
def test_a_refused_update_is_tried_again(tmp_path: Path, code: int, expected: int) -> None:
    fake = tmp_path / "nsupdate"
    fake.write_text(f"#!/bin/sh\ncat > {tmp_path}/told\nexit {code}\n")
    fake.chmod(0o700)
    options = {"--set": SET, "--name": "a.", "--server": "s", "--key": "k", "--nsupdate": str(fake)}
    done = subprocess.run(
        [sys.executable, "-m", "rollcall_ha.deploy.hooks.dns", *(word for pair in options.items() for word in pair)],
        input=json.dumps(serving("10.0.0.2:911")),
        text=True,
        timeout=30,
        check=False,
        env=our_environment(),
    )
    assert done.returncode == expected
    assert "update add a. 10 A 10.0.0.2" in (tmp_path / "told").read_text()

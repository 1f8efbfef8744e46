"""
A hook that lets an address follow the master of a set: the example of docs/hooks.md.

    command = ["/opt/rollcall/bin/python", "-P", "-m", "rollcall_ha.deploy.hooks.vip",
               "--set", "fleet/broker-a", "--address", "10.0.0.100/24", "--device", "eth0"]

Each machine of the set runs it: where the new master is, the address is added and told to the neighbours by gratuitous
ARP; everywhere else it is removed. IPv4. It needs CAP_NET_ADMIN and CAP_NET_RAW.

Rule: safety never rests on it. Two machines may have the address while one of them hears nothing; its broker is fenced
by its epoch (R9) and acknowledges nothing.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

IP_TIMEOUT_S = 5
ANNOUNCEMENTS = 3
_ETHERNET_ARP, _BROADCAST = 0x0806, b"\xff" * 6


class Move(Enum):
    TAKE = "taken"
    DROP = "removed"
    NOTHING = "not concerned"


def move_for(event: dict[str, Any], of_set: str, own_hosts: Collection[str]) -> Move:
    """What this machine has to do. ``event``: the payload of docs/hooks.md; ``own_hosts``: its own addresses."""
    key = event.get("setKey") or {}
    if event.get("type") != "master-serving" or f"{key.get('cluster')}/{key.get('name')}" != of_set:
        return Move.NOTHING
    host = (event["data"]["toAddress"] or "").rpartition(":")[0].strip("[]")
    # Before its address is known, nobody takes it: on the wrong machine it would lead to a broker that refuses.
    return Move.TAKE if host in own_hosts else Move.DROP


def own_hosts() -> set[str]:
    """The addresses of this machine. Raises ``OSError``, ``subprocess.SubprocessError``."""
    found = json.loads(_ip("-json", "address", "show"))
    return {one["local"] for link in found for one in link["addr_info"]}


def apply(move: Move, address: str, device: str) -> None:
    """Add or remove the address; either is fine if it is so already. As ``own_hosts`` raises."""
    host = str(ipaddress.ip_interface(address).ip)
    if move is Move.TAKE:
        if host not in own_hosts():
            _ip("address", "add", address, "dev", device)
        announce(host, device)
    elif move is Move.DROP and host in own_hosts():
        _ip("address", "del", address, "dev", device)


def announce(host: str, device: str) -> None:
    """Tell the neighbours by gratuitous ARP, so that they forget where the address was. Raises ``OSError``."""
    own = bytes.fromhex(Path(f"/sys/class/net/{device}/address").read_text().strip().replace(":", ""))
    packed = socket.inet_aton(host)
    frame = _BROADCAST + own + struct.pack("!H", _ETHERNET_ARP)
    frame += struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + own + packed + bytes(6) + packed
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((device, 0))
        for _ in range(ANNOUNCEMENTS):
            link.send(frame)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=IP_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done, or not our set. Anything else: it is tried again."""
    parser = argparse.ArgumentParser(prog="vip", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--set", required=True, help="cluster/name")
    parser.add_argument("--address", required=True, help="10.0.0.100/24")
    parser.add_argument("--device", required=True)
    asked = parser.parse_args(arguments)
    event = json.load(sys.stdin)
    try:
        # Without the address itself: a machine that has it would count as the master's.
        others = own_hosts() - {str(ipaddress.ip_interface(asked.address).ip)}
        move = move_for(event, asked.set, others)
        apply(move, asked.address, asked.device)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"vip: {error}", file=sys.stderr)
        return 1
    print(f"vip: {asked.address} {move.value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

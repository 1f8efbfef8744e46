"""
A hook that lets a DNS name follow the master of a set, by ``nsupdate``: an example of docs/hooks.md.

    command = ["/opt/rollcall/bin/python", "-P", "-m", "rollcall_ha.deploy.hooks.dns", "--set", "fleet/broker-a",
               "--name", "broker-a.example.com.", "--server", "10.0.0.53", "--key", "/etc/rollcall/dns.key"]

One process of the fleet runs it. The key is nsupdate's (TSIG), and for that user alone.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

NSUPDATE_TIMEOUT_S = 8


def update_for(event: dict[str, Any], *, of_set: str, name: str, server: str, ttl_s: int) -> str | None:
    """What nsupdate is told; None: the event changes nothing. Raises ``ValueError``: the master has no address."""
    key = event.get("setKey") or {}
    if event.get("type") != "master-serving" or f"{key.get('cluster')}/{key.get('name')}" != of_set:
        return None
    host = ipaddress.ip_address((event["data"]["toAddress"] or "").rpartition(":")[0].strip("[]"))
    kind = "A" if host.version == 4 else "AAAA"
    # One transaction: between a removal and an addition of their own, the name would be nobody's.
    lines = (f"server {server}", f"update delete {name} A", f"update delete {name} AAAA")
    return "\n".join((*lines, f"update add {name} {ttl_s} {kind} {host}", "send", ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done, or not our set. Anything else: it is tried again."""
    parser = argparse.ArgumentParser(prog="dns", description=(__doc__ or "").partition("\n")[0])
    for option in ("--set", "--name", "--server", "--key"):
        parser.add_argument(option, required=True)
    parser.add_argument("--ttl-s", type=int, default=10)
    parser.add_argument("--nsupdate", default="/usr/bin/nsupdate")
    asked = parser.parse_args(arguments)
    try:
        told = update_for(
            json.load(sys.stdin), of_set=asked.set, name=asked.name, server=asked.server, ttl_s=asked.ttl_s
        )
        if told is None:
            print("dns: not concerned")
            return 0
        done = subprocess.run(
            [asked.nsupdate, "-k", asked.key],
            input=told,
            capture_output=True,
            text=True,
            timeout=NSUPDATE_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"dns: {error}", file=sys.stderr)
        return 1
    if done.returncode != 0:
        print(f"dns: nsupdate: {done.stderr.strip()}", file=sys.stderr)
        return 1
    print(f"dns: {asked.name} updated")
    return 0


if __name__ == "__main__":
    sys.exit(main())

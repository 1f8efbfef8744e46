"""
The commands of the manual, as an operator types them: line by line on one fleet, page after page.

Here: blocks whose every line is a command ``rollcall``; then how wide each read prints. Not here: those that play on
machines of their own (tests/machines/test_three_machines.py), README's demo (``test_play``), and what needs Java or
engines of containers.

The fleet is laid out as docs/machines.md has it, its three machines being addresses of loopback. A line is typed in the
operator's folder, as printed but for ``OTHERWISE``; what its page takes for granted is in ``BEFORE``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.processes import Processes, our_environment, python_module
from tests.docs.transcripts import Block, shown
from tests.support import hook_files

pytestmark = [pytest.mark.cluster, pytest.mark.prove]
SET = "broker-a"
LINE_SECONDS_MAX = 60.0
TYPED = re.compile(r'(?:eval "\$\()?rollcall\b(?! init| analytics)')
ELSEWHERE = ("rollcall certs issue c4",)
"""First lines of blocks that need a fourth machine: tests/cluster/test_controller_members.py."""
OTHERWISE = {
    # Addresses of the page, and of this fleet; the host that is worked on is that of broker-a-2.
    r"m1:9200,m2:9200,m3:9200|s1:9200|10\.0\.0\.1:9200": "$CONTROLLERS",
    r"10\.0\.0\.5": "$HOST",
    r"(?<=retry )ID": "--all",
    # The number in the name of a file of events is that of its first entry.
    r"events-0+3\.jsonl": "events-*.jsonl",
    # A shell that need not be here, and a pager.
    r'eval "\$\((rollcall completion zsh)\)"': r"\1 > zsh.txt",
    r"&& man rollcall-elect": "&& test -s ~/.local/share/man/man1/rollcall-elect.1",
    # They run until they are stopped; then they end well.
    r"^rollcall hooks run": "{ rollcall hooks run & until ls hooks-data/hooks.sqlite3; do sleep 0.1; done; kill $!; wait $!; }",
    r"^(rollcall probe) --directory \S+ (.*)": r"{ \1 --directory probes \2 & until ls probes/*; do sleep 0.1; done; kill $!; wait $!; }",
    # The set of the pages about names; a topic is called like it.
    r"\b(switchover|clean|begin) (?:demo/)?orders\b": rf"\1 {SET}",
    r"\borders-(?=\d)": f"{SET}-",
    r"(?<=--expect-epoch )\d+": "$EPOCH",
    # It is the third of three, and the only replica that its set can spare; the replica lives, and nobody is here to ask.
    r"(maintenance begin \S+ --for 30m)$": r"\1 --spend-last",
    r"^rollcall clean .*": r"\g<0> --unclean --dry-run",
    r"^rollcall groups delete .*": r"\g<0> --yes",
    # A supervisor of this computer.
    r"ssh \{host\} systemctl kill -s KILL rollcall-broker@": "./killed ",
}
BEFORE = {
    "rollcall backup fleet-0300.backup --with-history": "rm fleet-0300.backup",
    "rollcall restore": "cp -r ../new . && cp fleet-0300.backup new && cd new",
    "rollcall context add prod": "cp tls/ca.pem . && cp tls/admin.pem alice.pem && cp tls/admin.key alice.key",
    "rollcall context add stage": "mkdir stage && cp tls/ca.pem stage && "
    "rollcall tokens issue --role viewer --name stage --out stage/robot.token",
    "rollcall verify data/c1": "ln -sfn ../machines/m1/data data",
    "rollcall completion fish": "mkdir -p ~/.config/fish/completions",
    # From another leader than the one that the page names.
    "rollcall controllers transfer --to": "rollcall controllers transfer --to c1 || true",
    "rollcall certs issue hooks": "cp -r ../authority .",
    "rollcall hooks check": 'printf "$HOOKS" > hooks.toml',
    # An order that says who is master and in which epoch, as it is then.
    f"rollcall switchover {SET} --to": f"rollcall wait {SET} --until in-sync --timeout 50; "
    f"rollcall switchover {SET} --to {SET}-3 --yes || true; "
    f"rollcall wait {SET} --until in-sync --timeout 50; EPOCH=$(rollcall sets -o json | grep -om1 '\"masterEpoch\": [0-9]*' | grep -o '[0-9]*$')",
    f"rollcall clean {SET}": f"rollcall maintenance end {SET}:{SET}-2",
    "rollcall drill": f"rollcall wait {SET} --until in-sync --timeout 50",
    # Its master is on that host then, and may be elected.
    "rollcall drain $HOST --at-a-time": f"rollcall maintenance end {SET}:{SET}-2; rollcall switchover {SET} --to {SET}-2 --yes || true",
}
"""By the beginning of a line."""
WIDTHS = (80, 120, 200)
READS = (
    "--help", "status", "sets", f"history {SET}", f"explain {SET}", "events", "doctor", "topics list",
    "topics show orders", "groups list", "maintenance list", "controllers", "config show", "config history", "config diff 1 3",
    "certs list", "tokens list", "context list", "drain $HOST --dry-run", "switchover " + SET + " --dry-run",
    "config apply heartbeat_timeout_ms=2500 --dry-run",
)  # fmt: skip
"""What prints tables and sentences, and changes nothing. Only a line that is a command or a path may be longer: it is copied."""
KILLED = """
import sys
from pathlib import Path
from rollcall_ha.deploy.local.processes import Processes, python_module

name, directory = sys.argv[1], Path("{directory}")
processes = Processes(directory)
processes.kill(name)
file = directory / "machines" / f"m{{name[-1]}}" / "rollcall.toml"
processes.start(name, python_module("rollcall_ha.broker.server", "--config", str(file), "--name", name))
"""
"""A supervisor: a broker that was killed is started again."""


def typed_here() -> list[Block]:
    """In the order of pages."""
    lines = {block: re.sub(r"\\\n *", "", block.text).splitlines() for block in shown() if block.test is None}
    return [
        block
        for block, typed in lines.items()
        if all(TYPED.match(line) for line in typed) and not typed[0].startswith(ELSEWHERE)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where commands are typed."""

    folder: Path
    environment: dict[str, str]

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """One line of a page, and what it takes for granted before it."""
        line = line.partition("  #")[0].rstrip()
        for pattern, mine in OTHERWISE.items():
            line = re.sub(pattern, mine, line)
        before = next((text for begins, text in BEFORE.items() if line.startswith(begins)), "true")
        return subprocess.run(
            ["timeout", f"{LINE_SECONDS_MAX}", "bash", "-o", "pipefail", "-c", f"{{ {before}; }} > /dev/null && {line}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=self.folder, env=self.environment,
        )  # fmt: skip


@contextmanager
def founded(directory: Path) -> Iterator[Desk]:
    """Three machines, each with a controller and a broker; all in sync."""
    pid = os.getpid()
    # Of this process alone: ports are the same on every machine, and two runs may be on one computer.
    hosts = [f"127.{1 + pid % 250}.{pid // 250 % 250}.{number}" for number in (1, 2, 3)]
    machines = [text for number, host in enumerate(hosts, start=1) for text in ("--machine", f"m{number}={host}")]
    init = python_module("rollcall_ha.cli.main", "init", "--directory", str(directory), "--name", "prod")
    subprocess.run([*init, *machines, "--brokers", f"{SET}=3"], capture_output=True, check=True, env=our_environment())
    # The empty machine on which a backup is restored.
    (directory / "new" / "data").mkdir(parents=True)
    subprocess.run(["cp", "-r", "rollcall.toml", "tls", "../../new"], check=True, cwd=directory / "machines" / "m1")
    desk = Desk(folder=directory / "operator", environment=environment(directory, hosts))
    killed = desk.folder / "killed"
    killed.write_text(f"#!{sys.executable} -P\n{KILLED.format(directory=directory)}")
    killed.chmod(0o755)
    processes, started = Processes(directory), list[str]()
    try:
        for kind, module in (("c", "rollcall_ha.api.server"), (f"{SET}-", "rollcall_ha.broker.server")):
            for number in (1, 2, 3):
                started.append(f"{kind}{number}")
                file = directory / "machines" / f"m{number}" / "rollcall.toml"
                processes.start(started[-1], python_module(module, "--config", str(file), "--name", started[-1]))
        told = desk.type(f"rollcall wait {SET} --until in-sync --timeout 50")
        assert told.returncode == 0, told.stderr
        yield desk
    finally:
        for name in reversed(started):
            processes.terminate(name)


def environment(directory: Path, hosts: list[str]) -> dict[str, str]:
    """That of somebody who has ``rollcall`` installed and nothing configured."""
    programs, home = directory / "bin", directory / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "rollcall").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rollcall_ha.cli.main "$@"\n')
    (programs / "rollcall").chmod(0o755)
    kept = {name: value for name, value in our_environment().items() if not name.startswith(("ROLLCALL", "XDG"))}
    rest = [f"{host}:9200" for host in hosts]
    trust = f'controllers = ["{rest[0]}"]\nauthority = "tls/ca.pem"\nidentity = "tls/hooks.pem"\n'
    hooks = f"version = 1\n[fleet]\n{trust}{hook_files.command('pager', '/bin/cat')}"
    ours = {"CONTROLLERS": ",".join(rest), "HOOKS": hooks, "HOST": hosts[1]}
    return kept | ours | {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)}


def too_wide(desk: Desk) -> list[str]:
    """Each read that has a line beyond its terminal."""
    found = []
    for width in WIDTHS:
        desk.environment["COLUMNS"] = str(width)
        for read in READS:
            printed = desk.type(f"rollcall {read}").stdout.splitlines()
            flowing = [line for line in printed if not line.lstrip().startswith(("rollcall ", "/"))]
            longest = max(flowing, key=len, default="")
            if not printed or len(longest) > width:
                found.append(f"{width} columns: rollcall {read}: {len(longest)} characters: {longest}")
    return found


def test_every_line_does_what_its_page_says(tmp_path: Path) -> None:
    """
    One named a file that no fleet has, one a folder that the settings beside it do not; three replicas refused a maintenance.

    In the order of pages: the versions of settings that a page speaks of were made by the lines before.
    """
    lines, began = 0, time.monotonic()
    refused: list[str] = []
    with founded(tmp_path / "fleet") as desk:
        for block in typed_here():
            for line in re.sub(r"\\\n *", "", block.text).splitlines():
                done = desk.type(line)
                lines += 1
                if done.returncode:
                    told = done.stdout[-500:] + done.stderr[-500:]
                    refused.append(f"{block.page}:{block.line}: {line}\n  {done.returncode}: {told}")
        # Of what all those lines have left: elections of each kind, settings, groups, maintenances.
        wide = too_wide(desk)
    counted = {"blocks": len(typed_here()), "lines": lines, "reads": len(READS) * len(WIDTHS)}
    print("COUNTED", counted | {"seconds": round(time.monotonic() - began, 1)})
    assert not refused, "\n".join(refused)
    assert not wide, "\n".join(wide)
    assert lines >= 50

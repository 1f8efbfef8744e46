"""
Every command of the CLI, once, as an operator types it on a machine that reaches one controller only.

Here: which commands there are, what each is asked, whether its exit code is the documented one. Not here: the fleet
(``fleet``), the story around it (``demo``).

Rule 1: which commands there are is read from ``--help`` of every group; one that nobody planned a question for is a
failure, so that a new command is asked too.
Rule 2: a refusal that is expected is a success; any other exit code, and a traceback, is a failure.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping

import msgspec

from rollcall_ha.client.client import Client
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import Frozen, host_of
from rollcall_ha.deploy.local import sites
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import LauncherError

COMMAND_SECONDS_MAX = 30.0
AUTHORITY = "authority"
"""Folder on the operator's disk while certificates are issued; it lies nowhere else but where the fleet was founded."""
_LISTED = re.compile(r"^(?!Options:)[A-Z][a-z ]*:\n((?:  .*\n)+)", re.MULTILINE)
"""The commands of each panel of a help."""
_GROUP = re.compile(r"^Usage: .* COMMAND ", re.MULTILINE)


class Asked(Frozen):
    """One question: words behind the name of the command, and the exit code that it is answered with."""

    words: tuple[str, ...] = ()
    exit_code: int = 0


def _asked(words: str = "", exit_code: int = 0) -> Asked:
    return Asked(words=tuple(words.split()), exit_code=exit_code)


REFUSED, WRONG_USE, UNREACHABLE, DEGRADED, CANNOT_START = 1, 2, 4, 6, 64
NOBODY = "127.0.0.1:9"
"""No RocketMQ controller is there: what comes back is the reason."""
PLANS: Mapping[str, tuple[Asked, ...]] = {
    "status": (_asked("--check"), _asked("-o json")),
    "sets": (_asked(),),
    "history": (_asked("{set}"),),
    "explain": (_asked("{set}"),),
    # Refused before anything of the extra otlp is needed, which may not be here.
    "trace": (_asked("{set} 999999", REFUSED),),
    "events": (_asked("--limit 5"), _asked("--oldest --limit 5 -o json")),
    "controllers": (_asked(),),
    "controllers list": (_asked(),),
    "controllers add": (_asked("c9 --raft 127.0.0.1:1 --broker 127.0.0.1:2 --rest 127.0.0.1:3 --dry-run"),),
    "controllers remove": (_asked("nobody", REFUSED),),
    "controllers replace": (_asked("c1 c9 --raft 127.0.0.1:1 --broker 127.0.0.1:2 --rest 127.0.0.1:3 --dry-run"),),
    "controllers transfer": (_asked("--dry-run"), _asked("--reason walk"), _asked("--to nobody", REFUSED)),
    # Brokers are out of reach from there, and consumers wait for them.
    "probe": (_asked("--once 1 --metrics 0.0.0.0:1", WRONG_USE),),
    "drill": (_asked("{set} --dry-run"), _asked("{set} --hard", WRONG_USE)),
    "produce": (_asked("demo --property nothing", WRONG_USE),),
    "consume": (_asked("demo --group walk --from nowhen", WRONG_USE),),
    # Two controllers, and the ports between nodes, are out of reach from the operator's machine: that is a finding.
    "doctor": (_asked("", DEGRADED), _asked("-o json", DEGRADED)),
    "wait": (_asked("{set} --until serving --timeout 20"),),
    "verify": (_asked("nowhere", WRONG_USE),),
    "context add": (_asked("walk --controllers 127.0.0.1:1"),),
    "context use": (_asked("walk"), _asked("--none")),
    "context list": (_asked(),),
    "context remove": (_asked("walk"),),
    "config show": (_asked(),),
    "config history": (_asked(),),
    "config diff": (_asked(),),
    "config apply": (
        _asked("heartbeat_timeout_ms=2500 --dry-run"),
        _asked("heartbeat_timeout_ms=2500 --reason walk --yes"),
        _asked("heartbeat_timeout_ms=2500 heartbeat_interval_ms=2500 --yes", REFUSED),
        _asked("", WRONG_USE),
    ),
    "config undo": (_asked("--dry-run"), _asked("--reason walk --yes")),
    "config set": (
        _asked("{set} --min-in-sync 1 --dry-run"),
        _asked("{set} --min-in-sync 1 --reason walk"),
        _asked("{set} --min-in-sync 0"),
        _asked("{set} --expected-replicas 1", REFUSED),
        _asked("{set}", WRONG_USE),
    ),
    "completion": (_asked("bash"),),
    "man": (_asked("pages"),),
    "elect": (
        _asked("{set} --to {other} --dry-run"),
        _asked("{set} --to {other} --yes --reason walk"),
        _asked("{set} --unclean", WRONG_USE),
    ),
    "switchover": (_asked("{set} --dry-run"), _asked("{set} --reason walk")),
    "backup": (_asked("walk.backup --with-history"), _asked("walk.backup", WRONG_USE)),
    "restore": (_asked("nowhere", WRONG_USE),),
    "hooks run": (_asked("--file nowhere", CANNOT_START),),
    "hooks check": (_asked("nowhere", WRONG_USE),),
    "hooks test": (_asked("pager --file nowhere", WRONG_USE),),
    "hooks dead-letters": (_asked("--file nowhere", WRONG_USE),),
    "hooks retry": (_asked("--all --file nowhere", WRONG_USE),),
    "hooks take": (_asked("--file nowhere", WRONG_USE),),
    "hooks secret": (_asked("walk.secret"), _asked("walk.secret", WRONG_USE)),
    "pause": (
        _asked("{set} --for 1m --dry-run"),
        _asked("{set} --for 1m --reason walk"),
        _asked("--for 1m", WRONG_USE),
    ),
    "resume": (_asked("{set} --dry-run"), _asked("{set}")),
    "acknowledge": (_asked("{set} --dry-run"), _asked("{set} --reason walk")),
    # On machines each broker has a host of its own.
    "drain": (_asked("{host} --dry-run"), _asked("{host} --reason walk"), _asked("nowhere", WRONG_USE)),
    "rebalance": (_asked("--dry-run"), _asked("--reason walk")),
    "maintenance begin": (
        _asked("{set}:{other} --for 1m --dry-run --spend-last"),
        _asked("{set}:{other} --for 1m --reason walk --spend-last"),
        _asked("nowhere --for 1m", REFUSED),
    ),
    "maintenance list": (_asked(),),
    "maintenance end": (_asked("{set}:{other} --dry-run"), _asked("{set}:{other}")),
    "bootstrap": (_asked("{set} --master 1 --yes", REFUSED),),
    "clean": (_asked("{set} --broker {other} --dry-run", REFUSED),),
    "raise-level": (_asked("--yes"),),
    "init": (
        _asked("--directory another --name another --controller c1=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"),
        _asked("--directory another --name another --controller c1=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", REFUSED),
    ),
    "certs issue": (_asked("walker --kind viewer"),),
    "certs renew": (_asked("admin"),),
    "certs list": (_asked(),),
    "certs revoke": (_asked("walker --yes --reason walk"),),
    "tokens issue": (_asked("--role viewer --name walker --out walker.token"),),
    "tokens list": (_asked(),),
    "tokens revoke": (_asked("nobody --yes", REFUSED),),
    "import rocketmq": (_asked(f"--controllers {NOBODY} --set broker-z --dry-run", UNREACHABLE),),
    "export rocketmq": (_asked(f"--controllers {NOBODY} --dry-run", UNREACHABLE),),
    # What the operator's disk has no key for cannot be run on it.
    "controller": (_asked("c1", CANNOT_START),),
    "broker": (_asked("broker-a-1", CANNOT_START),),
    "health": (_asked("c1", WRONG_USE),),
    "demo": (_asked("down --directory nowhere", REFUSED),),
}
OFFLINE = ("analytics",)
"""Groups that read files and never a controller: their verbs are asked for their help."""


class WalkCounts(msgspec.Struct):
    """What the walk has come to."""

    commands: int = 0
    questions: int = 0
    failed: int = 0


def walk(fleet: Fleet, key: SetKey, say: Callable[[str], None]) -> WalkCounts:
    """Ask every command; each answer is a line. Raises ``LauncherError``: the fleet is not on machines."""
    if fleet.machines is None:
        raise LauncherError("the walk is one of the operator's machine: this fleet is on loopback")
    counts = WalkCounts()
    authority = fleet.machines.disk(sites.OPERATOR) / AUTHORITY
    shutil.copytree(fleet.directory / AUTHORITY, authority)
    try:
        for name in _commands(fleet, ()):
            counts.commands += 1
            for asked in _plan(name):
                counts.questions += 1
                words = [word.format(**_facts(fleet.client(), key)) for word in asked.words]
                done = _ask(fleet, *name.split(), *words)
                is_good = done.returncode == asked.exit_code and "Traceback" not in done.stderr
                counts.failed += not is_good
                say(f"   {done.returncode}  rollcall {' '.join((name, *words))}")
                if not is_good:
                    said = (done.stdout + done.stderr).rstrip().replace("\n", "\n   |  ")
                    say(f"   FAILED: exit code {done.returncode}, not {asked.exit_code}\n   |  {said}")
    finally:
        shutil.rmtree(authority)
    return counts


def _plan(name: str) -> tuple[Asked, ...]:
    if name.partition(" ")[0] in OFFLINE:
        return (_asked("--help"),)
    # An exit code that none has: a command without a plan is asked for its help, and counted as failed (rule 1).
    return PLANS.get(name, (Asked(words=("--help",), exit_code=-1),))


def _facts(client: Client, key: SetKey) -> dict[str, str]:
    """What stands for names in the plans."""
    view = client.set(key).set.view
    other = min(member for member in view.sync_state_set if member != view.master)
    address = next(member.description.address for member in view.members if member.broker_id == view.master)
    return {"set": key.name, "other": str(other), "host": host_of(address)}


def _commands(fleet: Fleet, path: tuple[str, ...]) -> Iterator[str]:
    """Names of all commands below ``path``; a group that answers by itself is one too. Raises ``LauncherError``."""
    name = " ".join(path)
    if _is_leaf(name):
        yield name
        return
    done = _ask(fleet, *path, "--help")
    if done.returncode != 0:
        raise LauncherError(f"rollcall {name} --help ended with {done.returncode}: {done.stderr.strip()}")
    found = "".join(_LISTED.findall(done.stdout))
    if _GROUP.search(done.stdout) is None or not found:
        yield name
        return
    if name in PLANS:
        yield name
    # Continued lines of a description are indented further.
    for line in found.splitlines():
        if not line.startswith("   "):
            yield from _commands(fleet, (*path, line.split()[0]))


def _is_leaf(name: str) -> bool:
    """Whether it is known to have no verbs: asking each for its help would take half of the time."""
    if name.partition(" ")[0] in OFFLINE:
        return " " in name
    return name in PLANS and not any(other.startswith(f"{name} ") for other in PLANS)


def _ask(fleet: Fleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    # On the operator's disk: the contexts of whoever runs the walk stay as they are.
    return fleet.run_command(*arguments, timeout_s=COMMAND_SECONDS_MAX, ROLLCALL_CONTEXTS="contexts.json")

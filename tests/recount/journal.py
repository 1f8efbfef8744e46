"""
Journals as plain events: each once, in the order of its fleet's log, without what nobody counts.

Here: files, lines, copies. Not here: what the events mean (``sets``).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst")
CHUNK_BYTES = 1 << 22
_decode = json.JSONDecoder().raw_decode


class Event(NamedTuple):
    """One event of a journal, each copy once."""

    term: int
    place: tuple[int, int]
    """Index and ordinal: it orders the events of a fleet."""
    at_ms: int
    """Stamp of its entry, in ms since 1970, by the clock of the leader that proposed it; ``lived`` gives all one clock."""
    stamped_ms: int
    """The same, as it was written."""
    owner: tuple[str, str] | None
    """Cluster and name of its set; None: it is the fleet's."""
    kind: str
    body: Mapping[str, Any]
    asked: Mapping[str, Any] | None = None
    """Of an order: ``by``, ``proved``, ``request``, ``reason``, ``command`` if it was refused; None: no person asked."""
    chain: str = ""
    """Its hash."""
    follows: str | None = None
    """The hash of the event that it continues, if a file has that just before it."""
    text: str = ""
    """Its line without its hash, if no file has: a million lines would not fit into memory."""

    def continues(self, before: Event) -> bool:
        """Whether no event between both is missing, and this one is as it was written."""
        if self.follows is not None:
            return self.follows == before.chain
        return bool(before.chain) and _hash(before.chain, self.text) == self.chain


def _hash(before: str, text: str) -> str:
    return hashlib.sha256((before + text).encode()).hexdigest()


class Journals(NamedTuple):
    """What some files hold."""

    fleets: dict[str, list[Event]]
    """Fleet incarnation -> events in order."""
    read: Counter[str]
    """``lines``, ``copies``, ``others``: texts that are no event."""
    gaps: list[Mapping[str, Any]]
    """What probes felt, each once, as their lines have it."""


def read(paths: Iterable[Path]) -> Journals:
    """All events below these files and folders. Raises ``ValueError`` if two copies of an event differ."""
    found: dict[str, dict[tuple[int, int, int], Event]] = {}
    counted: Counter[str] = Counter()
    gaps: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for file in sorted(file for path in paths for file in _files(path)):
        before = ""
        for line in _lines(file):
            counted["lines"] += 1
            for record, text in _records(line):
                if not isinstance(record, dict) or "event" not in record:
                    counted["others"] += 1
                    if isinstance(record, dict) and record.get("kind") == "gap":
                        gaps[tuple(record[name] for name in ("cluster", "setName", "fromMs", "feltMs"))] = record
                    continue
                event = _event(record, text, before)
                before = event.chain
                of_fleet = found.setdefault(_fleet(record), {})
                known = of_fleet.setdefault((event.term, *event.place), event)
                counted["copies"] += known is not event
                if known.follows is None and event.follows is not None:
                    of_fleet[(event.term, *event.place)] = event
                if known._replace(follows=None, text="") != event._replace(follows=None, text=""):
                    raise ValueError(f"two copies of event {event.place} in {file} differ")
    fleets = {name: sorted(of.values(), key=lambda one: one.place) for name, of in found.items()}
    return Journals(fleets=fleets, read=counted, gaps=list(gaps.values()))


def _files(path: Path) -> Iterator[Path]:
    yield from (one for one in ([path] if path.is_file() else path.rglob("*")) if one.name.endswith(SUFFIXES))


def _lines(file: Path) -> Iterator[str]:
    with pa.input_stream(str(file), compression="detect") as stream:
        rest = b""
        while chunk := stream.read(CHUNK_BYTES):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole if line.strip())
    if rest.strip():
        yield rest.decode(errors="replace")


def _records(line: str) -> Iterator[tuple[Any, str]]:
    """The values on a line, one behind the other, each with its text; a text that is none gives None."""
    text = line.strip()
    while text:
        try:
            value, end = _decode(text)
        except ValueError:
            yield None, text
            return
        yield value, text[:end]
        text = text[end:].strip()


def _fleet(record: Mapping[str, Any]) -> str:
    """The founding event counts to the fleet that it founds."""
    name: str = record["fleetIncarnation"] or record["event"].get("fleetIncarnation", "")
    return name


def _event(record: Mapping[str, Any], line: str, before: str) -> Event:
    event, key, chain = record["event"], record["setKey"], record["chain"]
    text = line.replace(f'"chain":"{chain}"', '"chain":""')
    is_next = bool(before) and _hash(before, text) == chain
    slim = _SLIM.get(event["kind"], _nothing)
    return Event(
        term=record["term"],
        place=(record["index"], record["ordinal"]),
        at_ms=record["stampedAtMs"],
        stamped_ms=record["stampedAtMs"],
        owner=(key["cluster"], key["name"]) if key else None,
        kind=event["kind"],
        body=slim(event),
        asked=_asked(record),
        chain=chain,
        follows=before if is_next else None,
        text="" if is_next else text,
    )


def _asked(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A person, or a program with a person's rights; controllers and brokers write most of a record."""
    caller, event = record.get("principal"), record["event"]
    names = [record["requestedBy"], *([f"{caller['role']}:{caller['name']}"] if caller else [])]
    if any(name.startswith(("controller:", "broker:", "broker@")) for name in names):
        return None
    about = event.get("master") if event["kind"] == "master-elected" else event.get("brokerId")
    return {
        "by": names[-1],
        "proved": caller["provedBy"] if caller else None,
        "request": record["requestId"],
        "reason": event.get("reason"),
        "command": event.get("command"),
        "broker": about,
    }


# --- the fields that are counted: a million elections with all evidence would not fit into memory --------------------------


def _nothing(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def _named(*names: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda event: {name: event[name] for name in names if event.get(name) is not None}


def _election(event: Mapping[str, Any]) -> Mapping[str, Any]:
    verdict, detection = event["verdict"], event.get("detection")
    # Compared as (epoch, offset): more bytes in an older epoch are not more.
    held = [
        ((-1 if one["lastEpoch"] is None else one["lastEpoch"], one["maxOffset"] or 0), one["outcome"])
        for one in verdict["candidates"]
        if one["outcome"] in ("elected", "eligible")
    ]
    won = [end for (_, end), outcome in held if outcome == "elected"]
    most = max((ends for ends, _ in held), default=(0, 0))[1]
    return {
        "kind": verdict["kind"],
        "policy": verdict["policy"],
        "from": verdict["previousMaster"],
        "previousEpoch": verdict["previousEpoch"],
        "estimate": verdict.get("estimatedLossBytes") or 0,
        "regret": max(0, most - won[0]) if won else 0,
        "trigger": _place(event.get("triggeredBy")),
        "ages": _ages(detection) if detection else {},
        **_named("master", "masterIncarnation", "masterEpoch", *_SET)(event),
    }


def _place(reference: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return (reference["index"], reference["ordinal"]) if reference else None


def _ages(detection: Mapping[str, Any]) -> dict[str, Any]:
    """``cause``; ``fault``: of the first sign, ``alive``: of the last sure sign of life, ``detected``, in microseconds."""
    return {
        "cause": detection["cause"],
        "fault": detection["firstSignAgeUs"],
        "detected": detection["detectedAgeUs"],
        "alive": detection["aliveAgeUs"],
    }


def _silence(event: Mapping[str, Any]) -> Mapping[str, Any]:
    detection = event.get("detection")
    cause = "goodbye" if event["kind"] == "goodbye-said" else event["cause"]
    return {
        "brokerId": event["brokerId"],
        "incarnation": event["incarnation"],
        "cause": cause,
        "fault": _ages(detection)["fault"] if detection else None,
    }


def _milestone(event: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("masterEpoch", "phase", "elapsedUs", "observedUs", "uncertaintyUs", "waitedUs", "brokerId", "incarnation")
    return _named(*names)(event["milestone"])


def _grade(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return _named("masterEpoch", "grade", "boundBytes", "cutBytes")(event["verdict"])


def _altered(event: Mapping[str, Any]) -> Mapping[str, Any]:
    verdict = event["verdict"]
    return _named("syncStateSet", "syncStateSetEpoch")(verdict) if verdict["isAccepted"] else {}


def _registered(event: Mapping[str, Any]) -> Mapping[str, Any]:
    # Of a master's process that is known to have ended, by the next one only.
    ended = event.get("ended")
    return _BACK(event) | ({"ended": _ages(ended)} if ended else {})


_SET = ("syncStateSet", "syncStateSetEpoch")
_BACK = _named("brokerId", "incarnation", "configuration", *_SET)
_LASTING = _named("scope", "expiresAtMs", "isExpired")
_SLIM: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "master-elected": _election,
    "election-failed": _election,
    "election-withheld": _election,
    "replica-silent": _silence,
    "goodbye-said": _silence,
    "replica-registered": _registered,
    "session-opened": _BACK,
    "replica-alive": _BACK,
    "milestone-reached": _milestone,
    "master-entered": _named("brokerId", "incarnation", "masterEpoch"),
    "loss-graded": _grade,
    "sync-state-set-altered": _altered,
    "writes-stopped": _named("masterEpoch", "reason", "ageUs"),
    "writes-resumed": _named("stoppedUs"),
    "replicas-cleaned": _named("remaining", *_SET),
    "set-imported": _named(*_SET),
    "set-configured": _named("expectedReplicas", "minInSync"),
    "fleet-restored": _named("fleetIncarnation", "previousFleet", "backupIndex"),
    "clock-stepped": _named("stepMs"),
    "elections-paused": _LASTING,
    "elections-resumed": _LASTING,
    "maintenance-begun": _LASTING,
    "maintenance-ended": _LASTING,
    "switchover-ordered": _named("order", "master", "target", "masterEpoch", "lagBytes"),
    "switchover-ended": _named("order", "end", "reason"),
    "settings-applied": _named("version", "changed", "worstCaseRtoMs", "reason"),
}

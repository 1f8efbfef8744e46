"""
Sentences of the record: the words of each kind of event, for the command line and the console.

Here: the sentences, and reading them. Not here: how a number, a size, a broker looks (``FORMS`` of ``cli.records``,
and of ``words.js``, which gets the sentences as ``sentences.js``).

Rule 1: ``{brokerId:broker}`` is a fact of the event by its JSON name, with dots into facts of facts, in a form.
Rule 2: what stands in ``[...]`` is said only if each fact in it is there: no null, no empty text or list, not false.
``{isExpired:if}`` says nothing itself. Elsewhere a missing fact has what its form says of None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from rollcall_ha.controller.contract.events import Event

SENTENCES: Mapping[str, str] = {
    "fleet-initialised": "the fleet was founded",
    "fleet-restored": "the fleet was restored from a backup at index {backupIndex:number}",
    "leadership-taken": "controller {controller} leads in term {term}",
    "leadership-transfer-ordered": "the lead is moved from {controller} to {successor}",
    "controllers-change-ordered": "members of the controllers: {verb} {name}[: {reason}]",
    "feature-level-raised": "feature level {level}",
    "clock-stepped": "the clock of stamps stepped by {stepMs} ms",
    "confirms-noted": "confirm offsets of {confirms:count} sets are known",
    "broker-id-granted": "broker id {brokerId} given to {address}",
    "owner-bound": "broker id {brokerId} belongs to {owner}",
    "replica-registered": "replica {brokerId:broker} registered: {intactness}, ends at {positions.maxOffset:number}",
    "session-opened": "replica {brokerId:broker} opened session {sessionOrdinal}",
    "replica-silent": "replica {brokerId:broker} is gone: {cause}",
    "replica-alive": "replica {brokerId:broker} is heard again",
    "goodbye-said": "replica {brokerId:broker} stopped cleanly",
    "stop-announced": "replica {brokerId:broker} is about to stop",
    "switchover-ordered": "switchover from {master:broker} to {target:broker} ordered: {lagBytes:size} behind, "
    "within {deadlineMs:number} ms",
    "switchover-ended": "switchover to {target:broker} ended: {end}[: {reason}]",
    "master-elected": "replica {master:broker} elected in masterEpoch {masterEpoch} ({verdict.kind}), "
    "SyncStateSet {verdict.previousSet:brokers} → {syncStateSet:brokers}",
    "election-failed": "nobody may be elected: {reason}",
    "election-withheld": "would have elected {verdict.winner:broker}: elections are paused",
    "sync-state-set-altered": "SyncStateSet {previousSet:brokers} → {verdict.syncStateSet:brokers}",
    "alter-refused": "alter of the SyncStateSet refused: {reason}",
    "master-entered": "replica {brokerId:broker} entered masterEpoch {masterEpoch}[ at {startOffset:number}]",
    "loss-graded": "loss of masterEpoch {verdict.masterEpoch}: {verdict.grade}[, at most {verdict.boundBytes:size}]"
    "[, {verdict.cutBytes:size} cut]",
    "milestone-reached": "{milestone.brokerId:actor}: {milestone.phase} after {milestone.elapsedUs:duration}",
    "writes-stopped": "master {brokerId:broker} acknowledges no write: {reason}[: {detail}]",
    "writes-resumed": "master {brokerId:broker} acknowledges writes again after {stoppedUs:duration}",
    "replicas-cleaned": "replicas {brokerIds:brokers} forgotten; {remaining:brokers} remain",
    "set-imported": "taken over from other controllers in masterEpoch {masterEpoch}: master {master:broker}, "
    "SyncStateSet {syncStateSet:brokers}[: {reason}]",
    "certificate-revoked": "certificate {serial}[ ({name})] revoked[: {reason}]",
    "token-issued": "token {tokenId} of role {role} issued to {name} until {expiresAtMs:utc}",
    "token-revoked": "token {tokenId} revoked[: {reason}]",
    "elections-paused": "elections of {pausedSet:set} paused until {expiresAtMs:utc}[: {reason}]",
    "elections-resumed": "elections of {pausedSet:set} resumed[: its time was over{isExpired:if}][: {reason}]",
    "maintenance-begun": "maintenance of {scope:scope} until {expiresAtMs:utc}[: {reason}]",
    "maintenance-ended": "maintenance of {scope:scope} ended[: its time was over{isExpired:if}][: {reason}]",
    "set-configured": "expects {expectedReplicas} replicas ({previousExpectedReplicas}), "
    "min_in_sync {minInSync:least} ({previousMinInSync:least})[: {reason}]",
    "settings-applied": "settings version {version}: {changed:count} changed",
    "command-refused": "{command} refused: {reason}",
}
"""By the kind of the event."""

Form = Callable[[Any], str]


@cache
def sections(kind: str) -> tuple[tuple[bool, tuple[str | tuple[str, str], ...]], ...]:
    """The sentence of ``kind``, read: whether a part may be left out (rule 2), and its texts and (fact, form)."""
    parts = re.split(r"(\[[^\]]*\])", SENTENCES[kind])
    return tuple((number % 2 == 1, tuple(_pieces(part.strip("[]")))) for number, part in enumerate(parts) if part)


def _pieces(text: str) -> Iterator[str | tuple[str, str]]:
    for number, piece in enumerate(re.split(r"\{([^}]*)\}", text)):
        if number % 2:
            fact, _, form = piece.partition(":")
            yield fact, form
        elif piece:
            yield piece


def sentence(event: Event, forms: Mapping[str, Form]) -> str:
    """What ``event`` says, with its facts in ``forms``; the form "" is that of the others."""
    facts = msgspec.to_builtins(event)
    said = []
    for is_optional, pieces in sections(str(facts["kind"])):
        found = [piece if isinstance(piece, str) else (_fact(facts, piece[0]), piece[1]) for piece in pieces]
        if is_optional and any(_is_missing(one[0]) for one in found if isinstance(one, tuple)):
            continue
        said += [one if isinstance(one, str) else forms[one[1]](one[0]) for one in found]
    return "".join(said)


def _is_missing(fact: object) -> bool:
    """0 is a fact as any other: 0 bytes were cut."""
    return fact is None or fact is False or (isinstance(fact, str | list | tuple) and not fact)


def _fact(facts: object, path: str) -> object:
    for name in path.split("."):
        facts = facts.get(name) if isinstance(facts, dict) else None
    return facts

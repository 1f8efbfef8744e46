"""
Whether a backup is whole, says one thing, and may be restored; checked line by line, on the file alone.

Here: ``BackupWalk``. Not here: the format (``controller.contract.backups``), reading files and decrypting
(``controller.runtime.backup_files``), the rules of a record of events (``verification``), those of a state
(``invariants``).

Rule 1: what can be told of one line is told with its number; what only the whole shows names the line where it shows.
Rule 2: sums tell what was damaged, not what was forged: they can be made again. A forged record is found by its own
rules, a forged state where it contradicts itself, the header or the record.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.backups import (
    BACKUP_FORMAT,
    BackupEnd,
    BackupHeader,
    PartName,
    PartSum,
    encode_document,
)
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.backups import highest_epoch
from rollcall_ha.controller.core.invariants import check_state
from rollcall_ha.controller.core.snapshot import decode_state, item_complaint
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.verification import RecordWalk, Rule, Violation

_STATE_ITEM = b'{"item":"'


class _Format(msgspec.Struct):
    rollcall_backup: int = msgspec.field(name="rollcallBackup")


_decode_format = msgspec.json.Decoder(_Format).decode
_decode_header = msgspec.json.Decoder(BackupHeader).decode
_decode_end = msgspec.json.Decoder(BackupEnd).decode


class Told(Frozen):
    """A violation and its line, counted from 1."""

    number: int
    violation: Violation


class BackupWalk:
    """The documents of one file, without checksums, in order. History is walked by the caller, with ``record``."""

    def __init__(self) -> None:
        """Before the first line."""
        self.header: BackupHeader | None = None
        self.state: FleetState | None = None
        """Once the file has ended, and nothing is wrong with the state by itself."""
        self.end: BackupEnd | None = None
        self._number = 0
        self._sums = {name: PartSum(name) for name in PartName}
        self._items: list[bytes] = []
        self._begins_history = 0

    def add(self, document: bytes, *, is_last: bool) -> list[Told]:
        """What is wrong with the next line by itself."""
        self._number += 1
        if self._number == 1:
            return self._add_header(document)
        if is_last:
            return self._add_end(document)
        if document.startswith(_STATE_ITEM) and not self._begins_history:
            self._sums[PartName.STATE].add(document)
            self._items.append(document)
            complaint = item_complaint(document)
            return [self._told(Rule.READABLE, complaint)] if complaint else []
        self._begins_history = self._begins_history or self._number
        self._sums[PartName.HISTORY].add(document)
        if self.header is not None and not self.header.has_history:
            return [self._told(Rule.FORMAT, "no item of a state, and the header says that there is no history")]
        return []

    @property
    def is_history(self) -> bool:
        """Whether the line that was added last belongs to the record of events."""
        return bool(self._begins_history) and self.end is None

    def finish(self, record: RecordWalk) -> list[Told]:
        """What only the whole shows, once every line was right by itself; ``record``: of the history."""
        if self.header is None or self.end is None:
            return []
        found = self._judge_parts(self.end)
        if found:
            return found
        try:
            state = decode_state(self._items)
        except ValueError as error:
            return [self._told(Rule.ONE_STATE, str(error), number=2)]
        found += self._judge_state(self.header, state)
        if self.header.has_history:
            found += self._judge_record(self.header, state, record)
        self.state = None if found else state
        return found

    def _add_header(self, document: bytes) -> list[Told]:
        self._sums[PartName.HEADER].add(document)
        try:
            # The number first (rule 2 of the format): a later format may have any other field.
            told = _decode_format(document).rollcall_backup
            if told != BACKUP_FORMAT:
                text = (
                    f"format {told}; this program reads {BACKUP_FORMAT}: use the version that wrote it, or a later one"
                )
                return [self._told(Rule.FORMAT, text)]
            header = _decode_header(document)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return [self._told(Rule.READABLE, f"no header of a backup: {error}")]
        if encode_document(header) != document:
            return [self._told(Rule.READABLE, "the header is not written as this program writes it")]
        if header.feature_level > FEATURE_LEVEL:
            text = f"feature level {header.feature_level}; this program has {FEATURE_LEVEL}: use a later version"
            return [self._told(Rule.FORMAT, text)]
        self.header = header
        return []

    def _add_end(self, document: bytes) -> list[Told]:
        try:
            end = _decode_end(document)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return [self._told(Rule.READABLE, "the file ends here, and not with the end of a backup: it was cut off")]
        if encode_document(end) != document:
            return [self._told(Rule.READABLE, "the end is not written as this program writes it")]
        self.end = end
        return []

    def _judge_parts(self, end: BackupEnd) -> list[Told]:
        found = []
        if end.end_of_backup != self._number - 1:
            text = f"the end says {end.end_of_backup} lines before it, there are {self._number - 1}"
            found.append(self._told(Rule.FORMAT, text))
        counted = tuple(self._sums[name].part for name in PartName)
        for said in counted:
            if said not in end.parts:
                text = (
                    f"the end has other lines, bytes or sum than the {said.name.value}: {said.lines}, {said.size_bytes}"
                )
                found.append(self._told(Rule.CHECKSUM, text))
        if not found and end.parts != counted:
            found.append(self._told(Rule.FORMAT, "the end has other parts than a backup"))
        return found

    def _judge_state(self, header: BackupHeader, state: FleetState) -> list[Told]:
        found = []
        for what, said, held in (
            ("fleet", header.fleet_incarnation, state.fleet_incarnation),
            ("feature level", header.feature_level, state.feature_level),
            ("term", header.term, state.term),
            ("index", header.index, state.index),
            ("newest event", header.chain_head, state.chain_head),
            ("highest epoch", header.highest_epoch, highest_epoch(state)),
            ("number of sets", header.sets, len(state.sets)),
        ):
            if said != held:
                found.append(self._told(Rule.ONE_STATE, f"{what}: the header says {said}, the state {held}", number=1))
        found += [self._told(Rule.ONE_STATE, text, number=2) for text in check_state(state)]
        return found

    def _judge_record(self, header: BackupHeader, state: FleetState, record: RecordWalk) -> list[Told]:
        if not record.events:
            text = "the header says that there is history, and there is no event"
            return [self._told(Rule.FORMAT, text)] if header.chain_head else []
        # What the record ends with: the header and the state may have been made to fit each other.
        number, found = self._number - 1, []
        if (record.last_index or 0) > header.index:
            text = f"an event of entry {record.last_index}, and the state is of entry {header.index}"
            found.append(self._told(Rule.ONE_STATE, text, number=number))
        if record.chain != header.chain_head:
            text = f"the record ends with {record.chain}, the state with {header.chain_head}: events are missing"
            found.append(self._told(Rule.CHAIN, text, number=number))
        if record.fleet != header.fleet_incarnation:
            text = f"the record is of fleet {record.fleet}, the state of {header.fleet_incarnation}"
            found.append(self._told(Rule.ONE_FLEET, text, number=number))
        by_name = {str(key): one for key, one in state.sets.items()}
        for name, (epoch, master) in record.newest_reigns().items():
            held = by_name.get(name)
            known = None if held is None else (held.master_epoch, held.last_master)
            # An import may have raised the epoch since, nothing lowers it.
            if held is None or held.master_epoch < epoch or (held.master_epoch == epoch and held.last_master != master):
                text = f"{name}: the record elects {master} in epoch {epoch}, the state has {known}"
                found.append(self._told(Rule.ONE_STATE, text, number=number))
        return found

    def _told(self, rule: str, text: str, *, number: int | None = None) -> Told:
        return Told(number=self._number if number is None else number, violation=Violation(rule=rule, text=text))

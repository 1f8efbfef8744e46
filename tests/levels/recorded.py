"""
Lives of broker sets as one release applied them, kept for the releases after it.

Here: recording them (``python -m tests.levels.recorded``, at a release), and reading them. Not here: the replay
(``tests/property/test_feature_level_replay.py``).

One line per life, JSON, compressed: the payload of each entry with the beginning of the chain head after it, and the
snapshot at the end, which has the whole one. The lives are those of ``core_strategies``, drawn from one seed: most of
what a set can meet, in 25 entries.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    FIRST_FEATURE_LEVEL,
    AnnounceStop,
    BeginMaintenance,
    ConfigureSet,
    EndMaintenance,
    OrderSwitchover,
    ReportDrained,
    ReportWrites,
)
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, RequestId
from rollcall_ha.controller.contract.values import MaintenanceScope, StopReason
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.snapshot import encode_state
from rollcall_ha.controller.core.state import EMPTY_FLEET
from rollcall_ha.controller.replication.codec import encode_operations
from tests.levels.shapes import Shapes, shapes
from tests.support.core_builders import FLEET, Fleet, positions, stored
from tests.support.core_strategies import Step, live, lives, settled

LIVES = 120
CHAIN_DIGITS = 8
"""Kept of the chain head after each entry, to name the first one that differs: hashes are most of the file."""


def path_of(level: int) -> Path:
    """Where the lives of a level are."""
    return Path(__file__).parent / f"level_{level}.jsonl.xz"


def shapes_of(level: int) -> Path:
    """Where the shapes of a level's commands, events and sets are."""
    return Path(__file__).parent / f"level_{level}.json"


RECORDED = tuple(level for level in range(FIRST_FEATURE_LEVEL, FEATURE_LEVEL + 1) if path_of(level).exists())
"""The program's own level is among them from its release on."""


def recorded_shapes() -> Shapes:
    """What the newest recorded level has."""
    found: Shapes = json.loads(shapes_of(RECORDED[-1]).read_text(encoding="ascii"))
    return found


def recorded_lives(level: int) -> Iterator[dict[str, Any]]:
    """``entries``: (payload, beginning of the chain head) each; ``snapshot``: its items."""
    with lzma.open(path_of(level), "rt", encoding="ascii") as lines:
        yield from map(json.loads, lines)


def _record(fleet: Fleet) -> dict[str, Any]:
    state, entries = EMPTY_FLEET, []
    for index, operations in enumerate(fleet.entries, start=1):
        payload = encode_operations(operations)
        state = apply_operations(state, operations, term=1, index=index).state
        entries.append((payload, state.chain_head[:CHAIN_DIGITS]))
    return {"entries": entries, "snapshot": [item.decode() for item in encode_state(state)]}


def _rare() -> Iterator[Fleet]:
    """Lives that are not drawn often enough, each past a rule that was changed once."""
    forged = Fleet()
    forged.grant()
    forged.do(forged.registration(1, holds=positions(100, epoch=2**40)))
    yield forged
    shortened = Fleet().serving()
    mark = shortened.goodbye(3, end=300)
    shortened.do(shortened.registration(3, incarnation="i3.2", holds=positions(100), mark=mark))
    yield shortened
    recovering = Fleet().serving()
    alter = recovering.alter(1, 2)
    recovering.do(
        recovering.registration(3, incarnation="i3.2", view=stored(9, 9, 1, 2, 3, fleet=FLEET), holds=positions(0))
    )
    recovering.do(alter)
    recovering.do(alter)
    yield recovering
    leaping = Fleet().serving()
    leaping.do(leaping.alter(1, 2, seq=5_000))
    leaping.do(leaping.alter(1, 2, seq=4_000))
    yield leaping
    stopping = Fleet().serving()
    stopping.goodbye(1)
    stopping.elect()
    yield stopping
    yield _operated()


def _operated() -> Fleet:
    """An operator's day: a switchover to its end, other numbers, a maintenance, a stop of writes, a slave that stops."""
    fleet = Fleet().serving()
    key, order = fleet.key, RequestId("order-1")
    to_2 = OrderSwitchover(set_key=key, to=BrokerId(2), reason="patch")
    fleet.apply([fleet.operation(to_2, evidence=fleet.evidence(), request_id=order, requested_by="operator:ann")])
    fleet.do(
        ReportDrained(
            set_key=key,
            broker_id=BrokerId(1),
            incarnation=fleet.replica(1).incarnation or Incarnation(""),
            master_epoch=fleet.set.master_epoch,
            drained_us=9_000,
            order=order,
        ),
        evidence=fleet.evidence(),
    )
    fleet.enter(100)
    scope = MaintenanceScope(set_key=key, broker_id=BrokerId(3))
    fleet.do(BeginMaintenance(scope=scope, expires_at_ms=2_000_000, spends_last=True, reason="disk"))
    fleet.do(EndMaintenance(scope=scope, reason="done"))
    fleet.do(fleet.alter(2, 3))
    fleet.do(ConfigureSet(set_key=key, expected_replicas=4, reason="one more"))
    master = fleet.replica(2)
    process = {"broker_id": master.broker_id, "incarnation": master.incarnation or Incarnation("")}
    stop = {**process, "master_epoch": fleet.set.master_epoch, "seq": 1, "reason": StopReason.DISK_FULL, "detail": ""}
    fleet.do(ReportWrites(set_key=key, **stop, age_us=5_000))  # type: ignore[arg-type]
    fleet.do(ReportWrites(set_key=key, **stop, age_us=9_000, stopped_us=4_000))  # type: ignore[arg-type]
    slave = fleet.replica(3)
    fleet.do(
        AnnounceStop(
            set_key=key,
            broker_id=slave.broker_id,
            incarnation=slave.incarnation or Incarnation(""),
            session_ordinal=slave.session_ordinal,
            master_epoch=fleet.set.master_epoch,
        )
    )
    for broker_id in (1, 2, 3):
        fleet.silence(broker_id)
    fleet.elect()
    return fleet


def main() -> None:
    """Write the lives and shapes of this program's level. The same program writes the same bytes."""
    found: list[dict[str, Any]] = []

    @seed(FEATURE_LEVEL)
    @settings(
        max_examples=LIVES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(lives())
    def draw(life: list[list[Step]]) -> None:
        found.append(_record(live(settled() if len(found) % 3 else Fleet(), life)))

    draw()
    found += map(_record, _rare())
    with lzma.open(path_of(FEATURE_LEVEL), "wb", preset=9) as out:
        out.writelines(json.dumps(life, separators=(",", ":")).encode("ascii") + b"\n" for life in found)
    shapes_of(FEATURE_LEVEL).write_text(_text(shapes()), encoding="ascii")
    print(f"{len(found)} lives, {sum(len(life['entries']) for life in found)} entries: {path_of(FEATURE_LEVEL)}")


def _text(found: Shapes) -> str:
    """JSON with one type in each line, so that a difference shows which type changed."""
    parts = (
        f"{json.dumps(part)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in types.items())
        for part, types in found.items()
        if isinstance(types, dict)
    )
    return "{\n" + "\n},\n".join(parts) + "\n}\n}\n"


if __name__ == "__main__":
    main()

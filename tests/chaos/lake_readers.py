"""
Readers without Rollcall beside runs that are killed, and what they must see: one version, no row twice.

Here: starting them, waiting for their rounds, judging. What one does is ``tests.chaos.plain_reader``'s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS, GOLD_RTO_DAILY
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS
from rollcall_ha.deploy.local.processes import wait_until
from tests.chaos import plain_reader

DEADLINE_S = 300
TABLES = (BRONZE_EVENTS, SILVER_REIGNS, GOLD_FAILOVERS, GOLD_RTO_DAILY)


@dataclass(slots=True)
class Reader:
    """One program, and the lines that it has printed."""

    how: str
    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    rounds: int = 0

    def listen(self) -> None:
        """Until its output ends."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line = json.loads(text)
            if "round" in line:
                self.rounds = line["round"]
            else:
                self.lines.append(line)


class Readers:
    """All of ``plain_reader.READERS`` on one lake, from its first snapshot on."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        """``folder`` takes what they say of themselves."""
        self._lake = lake
        self._folder = folder
        self._readers: list[Reader] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        keys = json.dumps({table.path: table.key for table in TABLES})
        for how in plain_reader.READERS:
            with (self._folder / f"{how}.said").open("wb") as said:
                process = subprocess.Popen(
                    [sys.executable, plain_reader.__file__, how, str(self._lake.root), keys],
                    cwd=self._folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                )
            reader = Reader(how, process)
            self._readers.append(reader)
            self._threads.append(threading.Thread(target=reader.listen, daemon=True))
            self._threads[-1].start()
        self.await_rounds()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self._readers:
            assert reader.process.stdin is not None
            reader.process.stdin.close()
            try:
                reader.process.wait(timeout=DEADLINE_S)
            finally:
                reader.process.kill()
        for reader, thread in zip(self._readers, self._threads, strict=True):
            thread.join(DEADLINE_S)
            assert reader.process.stdout is not None
            reader.process.stdout.close()

    def await_rounds(self) -> None:
        """Until each has done a round that began after this call: the second to end from now on."""
        wanted = {reader.how: reader.rounds + 2 for reader in self._readers}

        def are_done() -> bool:
            for reader in self._readers:
                if reader.process.poll() is not None:
                    pytest.fail(f"{reader.how} ended: {(self._folder / f'{reader.how}.said').read_text()[-2_000:]}")
            return all(reader.rounds >= wanted[reader.how] for reader in self._readers)

        wait_until(are_done, deadline_s=DEADLINE_S, what=f"rounds {wanted} of the readers")

    def judge(self) -> dict[str, int]:
        """
        Reads by reader, and how many (table, version) and snapshots they met.

        Fails if a read failed, a key was there twice, a version had two contents, or a snapshot two versions of a table.
        """
        failed = [f"{reader.how}: {line}" for reader in self._readers for line in reader.lines if "failed" in line]
        assert failed == []
        reads: Counter[str] = Counter()
        contents: dict[tuple[str, str, int], str] = {}
        counts: dict[tuple[str, int], int] = {}
        versions: dict[tuple[int, str], int] = {}
        for reader in self._readers:
            for line in reader.lines:
                table, version, where = line["table"], line["version"], f"{reader.how}: {line}"
                assert line["keys"] == line["rows"], f"twice the rows, {where}"
                assert contents.setdefault((reader.how, table, version), line["digest"]) == line["digest"], where
                assert counts.setdefault((table, version), line["rows"]) == line["rows"], where
                assert versions.setdefault((line["snapshot"], table), version) == version, where
                reads[reader.how] += 1
        assert set(reads) == set(plain_reader.READERS)
        assert {table for table, _ in counts} == {table.path for table in TABLES}
        numbers = {number for number, _ in versions}
        found = {f"reads_{how}": count for how, count in sorted(reads.items())}
        return {**found, "failed_reads": len(failed), "versions": len(counts), "snapshots": len(numbers)}

"""
Commit latency of the hardened Raft: three processes on this machine, mutual TLS, every answer behind an fdatasync.

Run: ``.venv/bin/python -m tests.perf.bench_raft [seconds per row]``. Clients are tasks in the leader's process.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, ApplyBrokerId, Operation
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, ControllerName, RegisterCode, RequestId, SetKey
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.replication.async_proposer import AsyncProposer
from rollcall_ha.controller.replication.ports import RaftRole
from rollcall_ha.controller.replication.raft.log import RaftLog
from tests.cluster.test_raft_durability import _free_addresses
from tests.support.raft_certs import credentials_in, make_certificates
from tests.support.raft_driver import RaftProcess, found, start_node, wait_for
from tests.support.raft_ledger import Ledger, LedgerMachine

ME = "c3"


def _operation(number: int) -> Operation:
    """About 250 bytes on the wire."""
    return Operation(
        version=FEATURE_LEVEL,
        request_id=RequestId(f"{number:032d}"),
        stamped_at_ms=1_700_000_000_000,
        requested_by="broker:bench",
        command=ApplyBrokerId(
            set_key=SetKey(ClusterName("cluster"), BrokerName("broker-a")),
            register_code=RegisterCode("r" * 32),
            address="127.0.0.1:10911",
        ),
    )


async def _row(proposer: AsyncProposer, clients: int, seconds: float) -> str:
    latencies_ms: list[float] = []
    deadline = time.perf_counter() + seconds

    async def client() -> None:
        number = 0
        while time.perf_counter() < deadline:
            number += 1
            begin = time.perf_counter()
            await proposer.submit(_operation(number))
            latencies_ms.append((time.perf_counter() - begin) * 1000)

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    elapsed = time.perf_counter() - begin
    latencies_ms.sort()
    p50, p99 = (latencies_ms[int(len(latencies_ms) * part)] for part in (0.5, 0.99))
    return f"{clients:5d} in flight: {len(latencies_ms) / elapsed:9.0f}/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms"


def _lead(log: RaftLog[Ledger], others: dict[str, RaftProcess], restart: dict[str, object]) -> None:
    """Restart whoever else leads until this process does."""
    wait_for(lambda: log.leadership.leader is not None, 20.0, "a leader")
    while log.leadership.role is not RaftRole.LEADER:
        leader = log.leadership.leader
        if leader is not None and leader != ME:
            others[leader].kill()
            others[leader] = start_node(leader, **restart[leader])  # type: ignore[arg-type]
        time.sleep(1.0)


def main(seconds: float) -> None:
    """Print one row per number of clients."""
    sys.setswitchinterval(0.0005)
    with tempfile.TemporaryDirectory() as folder:
        root, members = Path(folder), _free_addresses()
        make_certificates(root / "tls", members)
        found([root / name for name in members])
        options: dict[str, object] = {
            name: {
                "members": members, "directory": root / name, "certificates": root / "tls",
                "compaction_entries": 20_000,
            }
            for name in members
        }  # fmt: skip
        others = {name: start_node(name, **options[name]) for name in members if name != ME}  # type: ignore[arg-type]
        log: RaftLog[Ledger] = RaftLog(
            LedgerMachine(),
            me=ControllerName(ME),
            members={ControllerName(name): address for name, address in members.items()},
            directory=root / ME,
            timing=PRESETS[Preset.NORMAL],
            tls=credentials_in(root / "tls", ME),
        )
        log.start()
        try:
            _lead(log, others, options)

            async def rows() -> None:
                proposer = AsyncProposer(log, propose_timeout_ms=3_000)
                for clients in (1, 16, 128, 1024):
                    print(await _row(proposer, clients, seconds))

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(rows())
            term = log.leadership.term
            print(f"term {term}, index {log.published.index}, {log.node.journal.syncs} syncs of the leader")
        finally:
            log.stop()
            for node in others.values():
                node.kill()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)

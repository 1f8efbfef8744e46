"""One controller on a memory log behind the real REST server over TLS, on a thread and a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

from rollcall_ha.api.rest.listening import RestServer
from rollcall_ha.client.identity import Identity
from rollcall_ha.node.certified import PeerKind
from tests.support.fleet_certs import FleetCertificates
from tests.support.rest_callers import caller, certificate
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    broker_id_body,
    heartbeat_body,
    register_body,
    running_group,
    until,
)

DEADLINE_S = 20.0


class RestThread(threading.Thread):
    """It leads, and knows the set ``demo/broker-a`` of two replicas. ``with RestThread(directory) as server: ...``."""

    def __init__(self, directory: Path) -> None:
        super().__init__(name="rest", daemon=True)
        self._directory = directory
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.certificates = FleetCertificates(directory / "tls")
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"https://{self.address}"
        self._ready = threading.Event()
        self._stopping: tuple[asyncio.AbstractEventLoop, RestServer] | None = None

    def __enter__(self) -> RestThread:
        self.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stopping is not None
        loop, server = self._stopping
        loop.call_soon_threadsafe(server.stop)
        self.join(DEADLINE_S)

    def identity(self, kind: PeerKind, name: str = "") -> Identity:
        """A new caller."""
        file = self.certificates.issue(kind, name or kind.value)
        return Identity(authority=self.certificates.authority_file, certificate=file)

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        async with running_group(self._directory, NAMES[:1], is_insecure=False) as group:
            leader = await group.elect("c1")
            await make_secured_set(leader)
            server = RestServer(leader.app, self.certificates.credentials())
            self._stopping = (asyncio.get_running_loop(), server)
            serving = asyncio.create_task(server.serve(self._listener))
            self._ready.set()
            await serving


async def make_secured_set(leader: Controller, size: int = 2) -> None:
    """``demo/broker-a`` with a master; each replica is registered by its own certificate."""
    for number in range(1, size + 1):
        async with caller(leader, certificate(PeerKind.BROKER, f"broker-a-{number}")) as http:
            for path, body in (
                ("/v1/broker-ids", broker_id_body(number)),
                ("/v1/replicas", register_body(number, expected=size)),
                ("/v1/heartbeat", heartbeat_body(number)),
            ):
                answer = await http.post(path, json=body)
                assert answer.status_code == 200, answer.text
    await until(lambda: any(found.master for found in leader.service.published.state.sets.values()))

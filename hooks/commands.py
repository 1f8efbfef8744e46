"""
One delivery to a command: a program with the event on its standard input.

Here: starting it, its time, its output. Not here: when it is tried again (``desk``).

Rule 1: no shell: arguments are those of the settings, and nothing of an event becomes part of a command line.
Rule 2: it runs as the hook's user, with that user's groups alone, in a session of its own, in ``/``, with an
environment of five variables: no secret of this process is in it.
Rule 3: exit code 0 is "I have it". After the timeout it is killed, with what it has started. Of what it prints, the
last ``OUTPUT_BYTES_MAX`` bytes are kept, for the reason of a failure.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import select
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rollcall_ha.hooks.desk import DELIVERED, Outcome
from rollcall_ha.hooks.settings import HookSection

OUTPUT_BYTES_MAX = 4_096
REASON_CHARS_MAX = 300
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Command:
    """The program of one hook."""

    def __init__(self, hook: HookSection) -> None:
        """Nothing is started yet."""
        self._hook = hook
        self._running: set[int] = set()
        # Threads of its own: in those that all share, commands that hang would hold up reading and all other hooks.
        self._threads = ThreadPoolExecutor(hook.at_a_time, thread_name_prefix=f"hook-{hook.name}")

    async def close(self) -> None:
        """Those that still run are killed."""
        for pid in tuple(self._running):
            _kill(pid)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def deliver(self, identity: str, kind: str, body: bytes) -> Outcome:
        """One run; ``kind`` is the type of the notice. Never raises but for cancellation."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, identity, kind, body)

    def _run(self, identity: str, kind: str, body: bytes) -> Outcome:
        deadline = time.monotonic() + self._hook.timeout_ms / 1000
        # A file in memory: a program that never reads its input holds nobody up, as a full pipe would.
        given = os.memfd_create("event")
        try:
            os.write(given, body)
            os.lseek(given, 0, os.SEEK_SET)
            process = subprocess.Popen(
                self._hook.command,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={
                    "PATH": PATH,
                    "LANG": "C.UTF-8",
                    "ROLLCALL_EVENT_ID": identity,
                    "ROLLCALL_EVENT_TYPE": kind,
                    "ROLLCALL_HOOK": self._hook.name,
                },
                start_new_session=True,
                **_as_user(self._hook.user),
            )
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            return Outcome(is_delivered=False, reason=f"{self._hook.command[0]} cannot be started: {error}")
        finally:
            os.close(given)
        self._running.add(process.pid)
        try:
            output, is_late = _watch(process, deadline)
        finally:
            self._running.discard(process.pid)
        told = output.decode(errors="replace").strip()[-REASON_CHARS_MAX:]
        if is_late:
            return Outcome(is_delivered=False, reason=f"killed after {self._hook.timeout_ms} ms: {told}")
        if process.returncode == 0:
            return DELIVERED
        return Outcome(is_delivered=False, reason=f"exit code {process.returncode}: {told}")


def _as_user(name: str) -> dict[str, Any]:
    """Arguments of ``Popen`` for another user. Raises ``KeyError``: there is none of that name."""
    if not name or os.geteuid() != 0:
        return {}
    found = pwd.getpwnam(name)
    # Without the groups, it would keep root's.
    return {
        "user": found.pw_uid,
        "group": found.pw_gid,
        "extra_groups": os.getgrouplist(name, found.pw_gid),
        "umask": 0o077,
    }


def _watch(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """Its last output, and whether it had to be killed; it has ended on return."""
    assert process.stdout is not None
    output, is_late = b"", False
    pidfd = os.pidfd_open(process.pid)
    try:
        with process.stdout as stream:
            polled = select.poll()  # not select(): its descriptors end at 1,024
            for descriptor in (stream.fileno(), pidfd):
                polled.register(descriptor, select.POLLIN)
            while True:
                left_ms = int((deadline - time.monotonic()) * 1000)
                ready = {descriptor for descriptor, _ in polled.poll(max(0, left_ms))}
                # Also if there is output: a program that prints for ever is as late as one that is silent.
                if left_ms <= 0 and pidfd not in ready:
                    is_late = True
                    _kill(process.pid)
                    break
                # Once it has ended and its time is over, a child that goes on printing is not listened to.
                if stream.fileno() in ready and (left_ms > 0 or pidfd not in ready):
                    piece = os.read(stream.fileno(), OUTPUT_BYTES_MAX)
                    output = (output + piece)[-OUTPUT_BYTES_MAX:]
                    if not piece:
                        polled.unregister(stream.fileno())
                # Its end, and not that of its output: a daemon that it has left behind keeps that open for ever.
                elif pidfd in ready:
                    break
        process.wait()
    finally:
        os.close(pidfd)
    return output, is_late


def _kill(pid: int) -> None:
    """The group that it leads: what it has started goes with it."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

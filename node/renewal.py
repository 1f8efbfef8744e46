"""
Renewed certificates of a running server.

Here: looking for them, and saying so in the log. Not here: taking them (``tls``), which they are (``credentials``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rollcall_ha.node.certified import WARNING_DAYS, utc_text
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import LOOK_INTERVAL_MS, Credentials

DAY_MS = 86_400_000


async def watch_files(
    credentials: Credentials, *, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> None:
    """Look every second for renewed files, until cancelled; once a day warn of an end that is near."""
    logger = get_logger("tls")
    told, told_day = "", 0
    while True:
        now_ms = wall_ms()
        if credentials.own.expires_in_days(now_ms) < WARNING_DAYS and now_ms // DAY_MS != told_day:
            told_day = now_ms // DAY_MS
            logger.warning(
                "certificate_expires",
                certificate=str(credentials.own.name),
                expires=utc_text(credentials.own.expires_at_ms),
                remedy=f"rollcall certs renew {credentials.own.name.name}",
            )
        await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        # On a thread: contexts are made of files, and their handshake with themselves takes 10 ms.
        if await asyncio.to_thread(credentials.renew_if_changed):
            logger.info(
                "certificate_renewed", serial=credentials.own.serial, expires_at_ms=credentials.own.expires_at_ms
            )
        # Once for each reason: a pair that is half replaced for a day would be 86,400 lines.
        if credentials.complaint != told:
            told = credentials.complaint
            if told:
                logger.error("certificate_not_renewed", reason=told)

"""
One delivery to a URL: a POST that is signed as Standard Webhooks has it.

Here: the signature, the request, what an answer means. Not here: when it is tried again (``desk``).

Rule 1: an answer of 2xx is "I have it"; anything else, also a redirect, is not: followed, a redirect would hand the
payload to whoever answered in the receiver's name.
Rule 2: a try ends within the hook's timeout, whatever the receiver does; of its answer at most ``ANSWER_BYTES_MAX``
bytes are read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable, Sequence

import httpx

from rollcall_ha import __version__
from rollcall_ha.hooks.desk import DELIVERED, Outcome
from rollcall_ha.hooks.settings import HookSection

ANSWER_BYTES_MAX = 4_096
REASON_CHARS_MAX = 200
RETRY_AFTER_S_MAX = 86_400


def signature(identity: str, timestamp_s: int, body: bytes, secrets: Sequence[bytes]) -> str:
    """Value of ``webhook-signature``: one for each secret, so that either is believed while one is changed."""
    signed = b".".join((identity.encode(), str(timestamp_s).encode(), body))
    found = (base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode() for secret in secrets)
    return " ".join(f"v1,{one}" for one in found)


class Webhook:
    """The receiver of one hook. Of one event loop; close it."""

    def __init__(
        self,
        hook: HookSection,
        secrets: Sequence[bytes],
        *,
        context: ssl.SSLContext | None,
        now_s: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``now_s``: UTC, signed with each try, so that a receiver can refuse old ones; ``transport``: for tests."""
        self._hook, self._secrets, self._now_s = hook, secrets, now_s
        # No environment: by HTTP_PROXY, somebody's shell would decide who reads what is delivered.
        self._http = httpx.AsyncClient(
            verify=True if context is None else context,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
            limits=httpx.Limits(max_connections=hook.at_a_time, max_keepalive_connections=hook.at_a_time),
        )

    async def close(self) -> None:
        """Its links are closed."""
        await self._http.aclose()

    async def deliver(self, identity: str, kind: str, body: bytes) -> Outcome:
        """One try. Never raises but for cancellation. ``kind``: unused; a command's environment has it."""
        del kind
        timestamp_s = int(self._now_s())
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": f"rollcall-hooks/{__version__}",
            "webhook-id": identity,
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": signature(identity, timestamp_s, body, self._secrets),
        }
        timeout_s = self._hook.timeout_ms / 1000
        try:
            # A limit on the whole try: httpx limits each step, and none is late if the receiver sends a byte a second.
            async with (
                asyncio.timeout(timeout_s),
                self._http.stream(
                    "POST", self._hook.url, content=body, headers=headers, timeout=httpx.Timeout(timeout_s)
                ) as answer,
            ):
                return await _judged(answer)
        except TimeoutError:
            return Outcome(is_delivered=False, reason=f"no answer within {self._hook.timeout_ms} ms")
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            return Outcome(is_delivered=False, reason=f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX])


async def _judged(answer: httpx.Response) -> Outcome:
    text = b""
    # A packed answer, which nobody asked for, would be unpacked before its size is looked at: 64 KiB become 64 MiB.
    if "content-encoding" not in answer.headers:
        async for piece in answer.aiter_bytes():
            text += piece
            # Not read to its end, its link is not used again; that is the receiver's loss.
            if len(text) >= ANSWER_BYTES_MAX:
                break
    if answer.is_success:
        return DELIVERED
    told = text[:REASON_CHARS_MAX].decode(errors="replace")
    after = answer.headers.get("retry-after", "")
    pause_s = min(int(after), RETRY_AFTER_S_MAX) if after.isascii() and after.isdigit() else 0
    return Outcome(
        is_delivered=False, reason=f"HTTP {answer.status_code} {told}".rstrip(), retry_after_ms=pause_s * 1000
    )

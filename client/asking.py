"""
The two questions of ``client.Client`` on which its parts are built.

Here: their protocol. Not here: connections, leaders, answers (``client``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rollcall_ha.controller.contract.ids import RequestId

T = TypeVar("T")


class Asking:
    """Base of the parts; ``client.Client`` brings both."""

    if TYPE_CHECKING:

        def _read(
            self, path: str, kind: type[T], params: dict[str, str] | None = None, *, limit_ms: int | None = None
        ) -> T: ...

        def _post(self, path: str, body: dict[str, Any], kind: type[T], request_id: RequestId | None) -> T: ...

"""System codes of remoting: those that belong to the framing itself (docs/wire.md, system codes)."""

from __future__ import annotations

from enum import IntEnum


class SystemCode(IntEnum):
    """Result codes below the numbers of any protocol on top."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    NO_PERMISSION = 16


LANGUAGES: tuple[str, ...] = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
    "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip
"""Names by the code that the binary header carries."""

FLAG_RESPONSE = 1
FLAG_ONE_WAY = 2

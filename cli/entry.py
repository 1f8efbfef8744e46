"""
The program ``rollcall`` of an installation: it starts the command line, or names the extra that is missing.

Apart from ``main``, because that one imports typer, which ``pip install rollcall-ha`` alone does not bring.
"""

from __future__ import annotations

import sys

from rollcall_ha import VERSION_LINE


def main() -> None:
    """Run the command line; exit with 2 and the remedy on stderr where only the client is installed."""
    if sys.argv[1:] == ["--version"]:
        # The command line would answer the same, but imports itself and typer first.
        print(VERSION_LINE)  # noqa: T201 (without a standard output it is silent)
        return
    try:
        from rollcall_ha.cli.main import main as run
    except ModuleNotFoundError as missing:
        # A module of ours that is missing is a broken installation: no extra would mend it, so its traceback stays.
        if missing.name is None or missing.name.startswith("rollcall_ha"):
            raise
        sys.stderr.write(
            f"rollcall: {missing.name} is not installed, for this is the client library alone. The command, controllers"
            " and brokers need: pip install 'rollcall-ha[server]'\n"
        )
        raise SystemExit(2) from None
    run()

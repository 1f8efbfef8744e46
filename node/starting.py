"""
How a node of a fleet begins: its command line, its logs, its fleet file.

Here: what controllers and brokers have in common of it. Not here: what each takes from the fleet file, and all that may
refuse its start afterwards (``api.server``, ``broker.server``).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rollcall_ha.node.config import FLEET_FILE_NAME, ConfigError, FleetFile, load_fleet_file
from rollcall_ha.node.log_options import LogOptionError, add_log_options
from rollcall_ha.node.process import ExitCode
from rollcall_ha.node.telemetry import choose_form, configure_logs, refuse_start


def begin(kind: str) -> tuple[FleetFile, str]:
    """
    The fleet file, and the name in it of the ``controller`` or ``broker`` that this process is.

    Logs are set up. Raises ``SystemExit``: wrong use of the command line (2), or what it gives cannot be used, which is
    said (``ExitCode.CONFIG``).
    """
    parser = argparse.ArgumentParser(prog=f"rollcall {kind}", description=f"Run one {kind}.")
    parser.add_argument("--config", type=Path, default=Path(FLEET_FILE_NAME), help="the fleet file")
    parser.add_argument("--name", required=True, help=f"which {kind} of the fleet file this is")
    add_log_options(parser)
    try:
        options = parser.parse_args()
    except LogOptionError as error:
        choose_form(parser.prog, None)
        raise SystemExit(refuse_start(ExitCode.CONFIG, str(error))) from None
    configure_logs(process=options.name, level=options.log_level, log_format=options.log_format)
    try:
        return load_fleet_file(options.config), options.name
    except ConfigError as error:
        raise SystemExit(refuse_start(ExitCode.CONFIG, str(error))) from None

"""
Programs of Prometheus, where they are installed: promtool, and a server that scrapes one fleet.

Here: finding and running them, questions to the server. Not here: rules and dashboard (``deploy/prometheus``,
``deploy/grafana``), what a test expects. ``deploy/setup.sh prometheus`` gets the programs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def program(name: str) -> str:
    """Path of promtool or prometheus; empty = it is not here."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent)) or ""


def why_not(name: str) -> str:
    """Why a test that needs this program is skipped; empty = it is not."""
    return "" if program(name) else f"{name} is not installed here: deploy/setup.sh prometheus"

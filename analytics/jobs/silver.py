"""``rollcall analytics silver [--lake FOLDER]``: bring silver up to date with bronze. See ``run``."""

from __future__ import annotations

import sys

from rollcall_ha.analytics.jobs.run import main

if __name__ == "__main__":
    sys.exit(main(layers=("silver",)))

"""``rollcall analytics ingest PATH... [--lake FOLDER]``: journals into bronze, and no further. See ``run``."""

from __future__ import annotations

import sys

from rollcall_ha.analytics.jobs.run import main

if __name__ == "__main__":
    sys.exit(main(layers=("ingest",)))

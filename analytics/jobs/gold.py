"""``rollcall analytics gold [--lake FOLDER]``: bring gold up to date with silver, print the summary. See ``run``."""

from __future__ import annotations

import sys

from rollcall_ha.analytics.jobs.run import main

if __name__ == "__main__":
    sys.exit(main(layers=("gold",)))

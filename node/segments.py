"""
How large a segment of a broker's log may be: one home for those who found a fleet and those who read its file.

Here: values only, so that the command line, which asks at each start, imports nothing for them.
"""

from __future__ import annotations

SEGMENT_BYTES_MIN = 4 * 1024
"""With less in the fleet file a broker does not start."""
SEGMENT_BYTES_MAX = 1024 * 1024 * 1024
"""With more in the fleet file a broker does not start."""
FOUNDED_BYTES_MIN = 64 * 1024
"""Of ``rollcall init``: smaller segments are for tests."""

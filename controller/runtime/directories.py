"""Names and marks in a controller's data directory, for the server and for what is done to it while it is stopped."""

from __future__ import annotations

DIRECTORY_KIND = "controller"
DIRECTORY_VERSION = 1
RAFT_DIRECTORY = "raft"
EVENTS_DIRECTORY = "events"
RESTORING_FILE_NAME = "RESTORING"
"""A restore was begun here and has not ended: the directory is nobody's."""

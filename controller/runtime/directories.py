"""
Names and marks in a controller's data directory, for the server and for what is done to it while it is stopped.

Rule 1: a directory belongs to one controller of one fleet. With the votes of another one a member would vote a second
time in their terms; with the log of another fleet it would wait for leaders that refuse it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollcall_ha.node.files import DirectoryError, atomic_replace

DIRECTORY_KIND = "controller"
DIRECTORY_VERSION = 1
RAFT_DIRECTORY = "raft"
EVENTS_DIRECTORY = "events"
RESTORING_FILE_NAME = "RESTORING"
"""A restore was begun here and has not ended: the directory is nobody's."""
OWNER_FILE_NAME = "OWNER"
"""Says whose the directory is. Not there before the log has said so, and in directories of 0.2.0."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes into a data directory."""

    fleet: str
    """By name: for people. Another fleet can have the same."""
    incarnation: str
    controller: str


_decode = msgspec.json.Decoder(Owner).decode


def own(directory: Path, owner: Owner) -> None:
    """Write whose it is; durable on return. Raises ``OSError``."""
    if not (directory / OWNER_FILE_NAME).exists():
        atomic_replace(directory / OWNER_FILE_NAME, msgspec.json.encode(owner) + b"\n")


def refuse_other_owner(directory: Path, owner: Owner) -> None:
    """Raises ``DirectoryError`` with both names if it is another one's, ``OSError``; changes nothing."""
    file = directory / OWNER_FILE_NAME
    try:
        found = _decode(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return
    except msgspec.MsgspecError as error:
        raise DirectoryError(f"{file} is damaged: {error}; if {directory} is this controller's, remove it") from error
    if (found.incarnation, found.controller) != (owner.incarnation, owner.controller):
        raise DirectoryError(
            f"{directory} belongs to controller {found.controller!r} of fleet {found.fleet!r} (incarnation "
            f"{found.incarnation}); the fleet file names it for {owner.controller!r} of {owner.fleet!r} "
            f"({owner.incarnation}). Name the directory of this controller"
        )

"""The fleet file: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.node.config import ConfigError, load_fleet_file, split_address

GOOD = """
version = 1
[fleet]
name = "demo"
incarnation = "00112233445566778899aabbccddeeff"
[controllers.c1]
raft = "127.0.0.1:1"
broker = "127.0.0.1:2"
rest = "127.0.0.1:3"
data = "data/c1"
"""


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """The file may lie anywhere."""
    path = tmp_path / "rollcall.toml"
    path.write_text(GOOD)

    fleet = load_fleet_file(path)

    assert fleet.path(fleet.controller("c1").data) == tmp_path / "data" / "c1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("version = 1", "version = 9"), "version 9"),
        (GOOD + "typo = 1\n", "controllers.NAME: unknown key 'typo'"),
        (GOOD.replace("[fleet]", "[fleet]\ntimming = 'fast'"), r"fleet: unknown key 'timming'; did you mean timing\?"),
        (GOOD.replace("[fleet]", "[fleets]"), r"the file: unknown key 'fleets'; did you mean fleet\?"),
        (GOOD.replace('"demo"', "7"), "fleet.name is a whole number, and has to be a text in quotes"),
        (GOOD.replace("version = 1", 'version = "one"'), "version is a text in quotes, and has to be a whole number"),
        (GOOD.replace('name = "demo"', ""), "fleet: 'name' is missing"),
        (GOOD.replace('"demo"', '"demo'), "line 4 is no TOML: 'name = \"demo': Illegal character .*; a text stands in"),
        ("not toml", "rollcall.toml: line 1 is no TOML: 'not toml': "),
    ],
)
def test_a_bad_file_names_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    """Unknown keys, wrong types, other versions, no TOML."""
    path = tmp_path / "rollcall.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=message):
        load_fleet_file(path)


def test_a_file_that_is_not_utf8_was_a_traceback(tmp_path: Path) -> None:
    """Saved by an editor of another country: the message names byte, value and remedy."""
    path = tmp_path / "rollcall.toml"
    path.write_bytes("version = 1\n# Flotte für München\n".encode("latin-1"))

    with pytest.raises(ConfigError, match=r"byte 22 is 0xfc, which is no UTF-8; save the file as UTF-8"):
        load_fleet_file(path)


def test_a_missing_file_names_the_remedy(tmp_path: Path) -> None:
    """Says how to make one."""
    with pytest.raises(ConfigError, match="rollcall init"):
        load_fleet_file(tmp_path / "none.toml")


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    """A typo in --name is easy to see."""
    path = tmp_path / "rollcall.toml"
    path.write_text(GOOD)

    with pytest.raises(ConfigError, match="it has: c1"):
        load_fleet_file(path).controller("c9")
    with pytest.raises(ConfigError, match="it has: none"):
        load_fleet_file(path).broker("b1")


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_a_bad_address_is_refused_with_its_value(address: str) -> None:
    """host:port only."""
    with pytest.raises(ConfigError, match="host:port"):
        split_address(address)


def test_addresses_split() -> None:
    """Also IPv6 in brackets."""
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert split_address("[::1]:80") == ("::1", 80)

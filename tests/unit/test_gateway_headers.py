"""Header classes and fastjson bodies: what Java writes is read, what is missing or no number is null."""

from __future__ import annotations

import json
import time

import pytest

from rollcall_ha.api.broker_port.headers import header_fields, read_header
from rollcall_ha.api.rocketmq.controller.beans import (
    BrokerHeartbeatHeader,
    ElectMasterHeader,
    MasterHeader,
    read_sync_state_set,
    sync_state_set_body,
)
from rollcall_ha.node.remoting.fastjson import quote_keys


def test_heartbeat_of_a_java_broker_is_read() -> None:
    """Field names as on the wire, the misspelt one included."""
    fields = {
        "brokerId": "1", "electionPriority": "2147483647", "confirmOffset": "1235", "heartbeatTimeoutMills": "10000",
        "clusterName": "c1", "brokerAddr": "127.0.0.1:31911", "epoch": "1", "maxOffset": "1235",
        "brokerName": "broker-a",
    }  # fmt: skip

    header = read_header(BrokerHeartbeatHeader, fields)

    assert header == BrokerHeartbeatHeader(
        cluster_name="c1", broker_addr="127.0.0.1:31911", broker_name="broker-a", broker_id=1, epoch=1, max_offset=1235,
        confirm_offset=1235, heartbeat_timeout_mills=10_000, election_priority=2_147_483_647,
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "x", "1.5", "0x10", "1" * 20, "9223372036854775808", "१", " 1"])
def test_number_that_is_none_is_null(text: str) -> None:
    """Java logs it and leaves the field null; raising here would cost the answer."""
    assert read_header(BrokerHeartbeatHeader, {"brokerId": text}).broker_id is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("", False)]
)
def test_boolean_is_true_only_by_that_word(text: str, value: bool) -> None:
    """Java's parseBoolean."""
    assert read_header(ElectMasterHeader, {"designateElect": text}).designate_elect is value


def test_answer_leaves_null_out() -> None:
    """A null field is no field: brokers take an absent master for no master."""
    assert header_fields(MasterHeader(master_epoch=7)) == {"masterEpoch": "7"}


def test_bare_digits_as_keys_are_quoted_outside_of_strings() -> None:
    """fastjson writes integer keys without quotes."""
    body = b'{1:"a{2:b",2:"c\\",3:d", "m" : { -4 : 5 ,6:7},"l":[1,2]}'

    assert json.loads(quote_keys(body)) == {"1": "a{2:b", "2": 'c",3:d', "m": {"-4": 5, "6": 7}, "l": [1, 2]}


@pytest.mark.parametrize("unit", [b'\\"', b"\\\n", b'"\\"', b"{1:", b",    ", b"{11", b'"a,2:'])
def test_strings_without_an_end_do_not_hold_up_the_loop(unit: bytes) -> None:
    """A 1001 of 40 KB took 5 s: each quote in its string began a search to the end."""
    for start in (b"", b'"', b"{"):
        began = time.process_time()
        quote_keys(start + unit * (200_000 // len(unit)))
        assert time.process_time() - began < 1


def test_set_is_sorted_and_each_member_once() -> None:
    """Java writes sets in any order; ours are equal when they have equal members."""
    found = read_sync_state_set(b'{"syncStateSetEpoch":3,"syncStateSet":[2,1,2]}')

    assert sync_state_set_body(found.sync_state_set, found.sync_state_set_epoch) == (
        b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'
    )

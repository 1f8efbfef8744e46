"""Who a RocketMQ peer is: signatures of Java's own, accounts, rights, addresses, certificates."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.api.broker_port.code_table import AccessRefused, CodeTable
from rollcall_ha.api.rocketmq.access.accounts import Account, AccountsFile, read_accounts, watch_accounts
from rollcall_ha.api.rocketmq.access.judging import (
    AccessRules,
    RocketmqAccess,
    accounts_of,
    rules_of,
)
from rollcall_ha.api.rocketmq.access.rights import Right, is_allowed, right_of
from rollcall_ha.api.rocketmq.access.signatures import signature_of, verify_signature
from rollcall_ha.api.rocketmq.names.name_service import NameService
from rollcall_ha.controller.contract.principals import ProvedBy, Role
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind
from rollcall_ha.node.config import ConfigError, load_fleet_file
from rollcall_ha.node.remoting.frame import Frame
from tests.support.rocketmq_wire import Port, with_port
from tests.support.runtime_controller import until

SECRET = "secret-of-brokers"
# Made by AclClientRPCHook of RocketMQ 5.3.3 itself, from the fields beside them and the secret above.
BY_JAVA: list[tuple[str, dict[str, str], str]] = [
    ("JqS1Uku8U93X9F0dE/Lo6BxLp3I=", {}, ""),
    (
        "GgwC5yfdVaJC7Xi43AOXidpY/GI=",
        {
            "clusterName": "c1",
            "brokerName": "broker-z",
            "brokerId": "1",
            "brokerAddress": "127.0.0.1:31998",
            "invokeTime": "1",
        },
        "",
    ),
    ("HiLTXDS56o9GraobCysNVwsJSU0=", {}, '["broker-z"]'),
    (
        "zYB6W0JYb/L9Lzql7W2KDWT5CSA=",
        {"SecurityToken": "a-token", "brokerName": "broker-ä", "zone": "日本", "\uff21late": "1", "😀smile": "2"},
        '{"x":"ä"}',
    ),
]
ACCOUNTS = {
    "brokers": Account(secret=SECRET, role=Role.BROKER, sets=("broker-z",)),
    "every": Account(secret=SECRET, role=Role.BROKER, sets=("*",)),
    "admin": Account(secret=SECRET, role=Role.ADMIN),
    "operator": Account(secret=SECRET, role=Role.OPERATOR),
    "viewer": Account(secret=SECRET, role=Role.VIEWER),
}
SIGNED = AccessRules(takes_plain=True, accounts=ACCOUNTS)


def signed(code: int, key: str, body: bytes = b"", **fields: str) -> Frame:
    """A request as Java signs it."""
    fields = {**fields, "AccessKey": key}
    return Frame(code=code, opaque=1, body=body, ext_fields=fields | {"Signature": signature_of(SECRET, fields, body)})


def refusal(rules: AccessRules, frame: Frame, *, address: str = "10.1.2.3:4") -> str:
    """Under which word this request is refused; empty: it is not."""
    access = RocketmqAccess(rules)
    with suppress(AccessRefused):
        access.judge(frame, address=address, certificate=None)
    return next(iter(access.refused), "")


def certificate(kind: PeerKind, set_key: str = "") -> PeerCertificate:
    name = CertifiedName(fleet="demo", kind=kind, name="x", set_key=set_key)
    return PeerCertificate(name=name, serial="ab", expires_at_ms=1)


# --- signatures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signature", "fields", "body"), BY_JAVA)
def test_signatures_are_those_of_java(signature: str, fields: dict[str, str], body: str) -> None:
    """Also the order of names outside of the first 65,536 characters, and of an old signature that is signed over."""
    fields = {**fields, "AccessKey": "broker-key", "Signature": signature}
    assert signature_of(SECRET, fields, body.encode()) == signature
    assert verify_signature(SECRET, fields, body.encode())
    for wrong in (
        verify_signature("another secret", fields, body.encode()),
        verify_signature(SECRET, fields, body.encode() + b" "),
        verify_signature(SECRET, fields | {"brokerId": "2"}, body.encode()),
        verify_signature(SECRET, fields | {"Signature": signature.lower()}, body.encode()),
        verify_signature(SECRET, {name: text for name, text in fields.items() if name != "Signature"}, body.encode()),
    ):
        assert not wrong


@given(st.dictionaries(st.text(), st.text()), st.text(), st.binary())
def test_no_fields_make_the_comparison_fail(fields: dict[str, str], signature: str, body: bytes) -> None:
    """A peer chooses them all: what is no ASCII, or no Base64, is a wrong signature and nothing else."""
    assert not verify_signature(SECRET, {**fields, "Signature": signature}, body)


# --- the file of accounts --------------------------------------------------------------------------------------------

FILE = """
[accounts.broker-key]
secret = "secret-of-brokers"
role = "broker"
sets = ["broker-z"]
"""


def write(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "rocketmq.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_accounts_are_read_and_show_no_secret(tmp_path: Path) -> None:
    accounts = read_accounts(write(tmp_path, FILE))
    assert accounts["broker-key"].role is Role.BROKER
    assert SECRET not in repr(accounts)


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (FILE, 0o644, "mode is 0644.*chmod 0640"),
        (FILE.replace("secret-of-brokers", "short"), 0o600, "5 characters, at least 8"),
        (FILE.replace('["broker-z"]', "[]"), 0o600, "needs sets"),
        (FILE.replace('"broker"', '"admin"'), 0o600, "sets belong to the role broker, this one is admin"),
        (FILE.replace('"broker"', '"king"'), 0o600, "king"),
        (FILE + "typo = 1", 0o600, "typo"),
        ("[accounts", 0o600, "no TOML"),
    ],
)
def test_a_bad_file_of_accounts_names_the_remedy_and_no_secret(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_accounts(write(tmp_path, text, mode))
    assert SECRET not in str(caught.value)


def test_a_missing_file_of_accounts_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rocketmq\.toml cannot be read"):
        read_accounts(tmp_path / "rocketmq.toml")


def test_a_key_that_was_taken_away_was_believed_until_the_controller_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollcall_ha.api.rocketmq.access.accounts.LOOK_INTERVAL_MS", 1)
    both = FILE + '[accounts.thief]\nsecret = "stolen-secret"\nrole = "admin"\n'

    async def scene() -> None:
        file = AccountsFile(write(tmp_path, both))
        access = RocketmqAccess(AccessRules(takes_plain=True, accounts=file.accounts))
        task = asyncio.create_task(watch_accounts(file, access.take_accounts))

        def thief() -> str:
            fields = {"AccessKey": "thief"}
            fields["Signature"] = signature_of("stolen-secret", fields, b"")
            try:
                access.judge(Frame(code=1005, opaque=1, ext_fields=fields), address="10.1.2.3:4", certificate=None)
            except AccessRefused as refusal:
                return refusal.reason
            return "believed"

        assert thief() == "believed"
        write(tmp_path, FILE, 0o644)
        await until(lambda: "mode is 0644" in file.complaint)
        assert thief() == "believed", "a file that cannot be used changes nothing"
        (tmp_path / "rocketmq.toml").unlink()
        await until(lambda: "cannot be read" in file.complaint)
        write(tmp_path, FILE)
        await until(lambda: thief() == "signature")
        assert not file.complaint
        task.cancel()

    asyncio.run(scene())


# --- the fleet file --------------------------------------------------------------------------------------------------

FLEET = """
version = 1
[fleet]
name = "demo"
incarnation = "00112233445566778899aabbccddeeff"
insecure = {insecure}
"""


def rules_in(directory: Path, section: str, *, insecure: bool = False) -> AccessRules:
    path = directory / "rollcall.toml"
    path.write_text(FLEET.format(insecure=str(insecure).lower()) + section)
    document = load_fleet_file(path)
    return rules_of(document, accounts_of(document))


def test_without_a_word_only_an_insecure_fleet_is_open(tmp_path: Path) -> None:
    assert rules_in(tmp_path, "").is_closed
    assert rules_in(tmp_path, "", insecure=True).takes_plain


def test_modes_of_tls_are_those_of_rocketmq(tmp_path: Path) -> None:
    write(tmp_path, FILE)
    for mode, plain, nameless in (
        ("disabled", True, False),
        ("permissive", True, True),
        ("enforcing", False, True),
    ):
        rules = rules_in(tmp_path, f'[rocketmq]\ntls = "{mode}"\ncredentials = "rocketmq.toml"\n')
        assert (rules.takes_plain, rules.takes_nameless_tls) == (plain, nameless)
        assert rules.accounts is not None


@pytest.mark.parametrize(
    ("section", "insecure", "message"),
    [
        ("[rocketmq]\n", False, "neither addresses nor credentials"),
        ('[rocketmq]\ntls = "on"\naddresses = ["::/0"]\n', False, "Invalid enum value 'on'"),
        ('[rocketmq]\naddresses = ["10.0.0.1/8"]\n', False, "'10.0.0.1/8'.*host bits"),
        ('[rocketmq]\naddresses = ["broker.example"]\n', False, "takes networks such as"),
        ('[rocketmq]\ntls = "enforcing"\naddresses = ["::/0"]\n', True, "plain ports only"),
    ],
)
def test_a_bad_section_names_the_remedy(tmp_path: Path, section: str, insecure: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rules_in(tmp_path, section, insecure=insecure)


# --- who asks --------------------------------------------------------------------------------------------------------


def test_a_closed_port_answers_nobody_without_a_certificate() -> None:
    assert refusal(AccessRules(), signed(1005, "admin")) == "no certificate"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.1.2.3:9", ""),
        ("::ffff:10.1.2.3:9", ""),
        ("[fd00::7]:9", ""),
        ("11.0.0.1:9", "address"),
        ("[fe80::1%eth0]:9", "address"),
        ("?", "address"),
    ],
)
def test_only_listed_addresses_are_heard(tmp_path: Path, address: str, reason: str) -> None:
    rules = rules_in(tmp_path, '[rocketmq]\naddresses = ["10.0.0.0/8", "fd00::/8"]\n')
    assert refusal(rules, Frame(code=1005, opaque=1), address=address) == reason


def test_a_listed_address_alone_opens_nothing_where_keys_are_configured() -> None:
    assert refusal(SIGNED, Frame(code=1005, opaque=1)) == "not signed"


def test_wrong_key_and_wrong_secret_are_one_answer() -> None:
    """Else a stranger could ask which access keys there are."""
    access, messages = RocketmqAccess(SIGNED), set()
    right = signed(1005, "admin")
    stolen = Frame(code=1005, opaque=1, ext_fields={**(right.ext_fields or {}), "AccessKey": "viewer"})
    for frame in (signed(1005, "nobody"), stolen):
        with pytest.raises(AccessRefused) as caught:
            access.judge(frame, address="10.0.0.1:9", certificate=None)
        messages.add((caught.value.reason, str(caught.value)))
    assert messages == {("signature", "AccessKey or Signature is wrong")}
    caller = access.judge(right, address="10.0.0.1:9", certificate=None)
    assert (caller.name, caller.role, caller.proved_by, caller.serial) == (
        "admin",
        Role.ADMIN,
        ProvedBy.SIGNATURE,
        "admin",
    )


def test_refusals_do_not_fill_the_disk(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a second, which says how many it stands for; a name that a peer chose is cut."""
    now_s = 100.0
    access = RocketmqAccess(SIGNED, lambda: now_s)
    for step_s in (0.0, 0.1, 0.1, 0.9):
        now_s += step_s
        with pytest.raises(AccessRefused):
            access.judge(signed(1003, "brokers", brokerName="x" * 5_000), address="10.0.0.1:9", certificate=None)
    lines = [line for line in capsys.readouterr().out.splitlines() if "set" in line]
    assert [("left_out=0" in line, "left_out=2" in line) for line in lines] == [(True, False), (False, True)]
    assert all(len(line) < 500 for line in lines)


def test_a_broker_speaks_for_its_sets_only() -> None:
    for key, name, reason in (
        ("brokers", "broker-z", ""),
        ("brokers", "broker-y", "set"),
        ("every", "broker-y", ""),
        ("admin", "broker-z", "right"),
        ("viewer", "broker-z", "right"),
    ):
        for code in (904, 1001, 1002, 1003, 1013, 103, 104):
            assert refusal(SIGNED, signed(code, key, brokerName=name)) == reason, (key, code)
    assert refusal(SIGNED, signed(1003, "brokers")) == "set"


def test_a_topic_is_registered_for_the_sets_of_its_queues() -> None:
    """217 names its brokers in the body alone."""
    queue = '{{"brokerName":"{}","perm":6,"readQueueNums":1,"writeQueueNums":1}}'
    own, other = queue.format("broker-z"), queue.format("broker-y")
    for queues, reason in ((own, ""), (f"{own},{other}", "set"), ("", "set"), ("[", "set")):
        body = f'{{"queueDatas":[{queues}]}}'.encode()
        assert refusal(SIGNED, signed(217, "brokers", body, topic="t", brokerName="broker-z")) == reason


def test_elections_are_ordered_by_operators_and_asked_for_by_brokers() -> None:
    for key, designate, reason in (
        ("operator", "true", ""),
        ("admin", "true", ""),
        ("brokers", "true", "right"),
        ("brokers", "false", ""),
        ("operator", "false", "right"),
    ):
        frame = signed(1002, key, brokerName="broker-z", designateElect=designate)
        assert refusal(SIGNED, frame) == reason, (key, designate)
    assert refusal(SIGNED, signed(1011, "operator", brokerName="broker-z")) == "right"
    assert refusal(SIGNED, signed(1011, "admin", brokerName="broker-z")) == ""


@pytest.mark.parametrize(
    ("kind", "set_key", "code", "reason"),
    [
        (PeerKind.BROKER, "c1/broker-z", 1003, ""),
        (PeerKind.BROKER, "c1/broker-y", 1003, "set"),
        (PeerKind.BROKER, "c1/*", 1003, "set"),
        (PeerKind.CLIENT, "", 105, ""),
        (PeerKind.CLIENT, "", 1003, "right"),
        (PeerKind.ADMIN, "", 1011, ""),
        (PeerKind.CONTROLLER, "", 1005, "certificate"),
    ],
)
def test_a_certificate_says_who_its_owner_is(kind: PeerKind, set_key: str, code: int, reason: str) -> None:
    """It needs no signature, also where keys are configured, and it gives no more than its kind does."""
    access = RocketmqAccess(SIGNED)
    frame = Frame(code=code, opaque=1, ext_fields={"brokerName": "broker-z"})
    caller = None
    with suppress(AccessRefused):
        caller = access.judge(frame, address="10.0.0.1:9", certificate=certificate(kind, set_key))
    assert next(iter(access.refused), "") == reason
    if caller is not None:
        assert (caller.proved_by, caller.serial) == (ProvedBy.CERTIFICATE, "ab")


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_code_that_is_served_has_a_right_and_no_other_has(tmp_path: Path) -> None:
    """Default deny: a code that is added to a port is refused until it is added to the table."""

    async def scenario(port: Port) -> None:
        codes: CodeTable = port.gateway.codes
        names = NameService(published=lambda: None, monotonic_ns=lambda: 0, file=None, settings={})  # type: ignore[arg-type,return-value]
        names.register(codes)
        for code in range(4_000):
            right = right_of(Frame(code=code, opaque=1))
            assert (right is Right.NOBODY) == (codes.find(Frame(code=code, opaque=1)) is None), code
        await asyncio.sleep(0)

    with_port(tmp_path, scenario)
    assert not any(is_allowed(role, Right.NOBODY) for role in Role)

"""Callers in the controllers' core: owners of broker ids (R27), what is revoked (R28), tokens."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AnyCommand,
    ApplyBrokerId,
    Barrier,
    CleanReplicas,
    IssueToken,
    RaiseFeatureLevel,
    RevokeCertificate,
    RevokeToken,
)
from rollcall_ha.controller.contract.events import (
    CertificateRevoked,
    CommandRefused,
    OwnerBound,
    SessionOpened,
    TokenIssued,
    TokenRevoked,
)
from rollcall_ha.controller.contract.ids import BrokerId, RegisterCode, ReplicaKind
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import AnyReply, Done, IdGranted, Refused, Registered
from rollcall_ha.controller.core.invariants import check_entry, check_state, check_transition
from rollcall_ha.controller.core.revocations import EXPIRED_KEPT_MS
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import REVOKED_MAX, TOKENS_MAX
from rollcall_ha.controller.core.tokens import TokenRefused, digest_of, judge_token
from rollcall_ha.controller.core.views import view_of
from tests.support.core_builders import SET_A, SET_B, Fleet, refusal

FAR_MS = 4_000_000_000_000

A1 = Principal(name="broker-a-1", role=Role.BROKER, proved_by=ProvedBy.CERTIFICATE, serial="a1", set_key=SET_A)
A2 = Principal(name="broker-a-2", role=Role.BROKER, proved_by=ProvedBy.CERTIFICATE, serial="a2", set_key=SET_A)
ALICE = Principal(name="alice", role=Role.ADMIN, proved_by=ProvedBy.CERTIFICATE, serial="ace", address="10.0.0.7:5")
ANYBODY = Principal(name="bob", role=Role.ADMIN, proved_by=ProvedBy.NOTHING)
KEY = Principal(name="rocketmq-key", role=Role.BROKER, proved_by=ProvedBy.SIGNATURE, serial="rocketmq-key")


def code(reply: AnyReply) -> RefusalCode:
    return refusal(reply).code


def apply_id(code: str = "code-1") -> ApplyBrokerId:
    return ApplyBrokerId(set_key=SET_A, register_code=RegisterCode(code), address="10.0.0.1:911")


def revoke(serial: str, *, expires_at_ms: int = FAR_MS) -> RevokeCertificate:
    return RevokeCertificate(serial=serial, name=f"of {serial}", expires_at_ms=expires_at_ms, reason="lost")


def token(text: str, **changes: Any) -> IssueToken:
    fields: dict[str, Any] = {"role": Role.OPERATOR, "name": "deploy", "expires_at_ms": FAR_MS} | changes
    return IssueToken(token_id=text, digest=digest_of(text), **fields)


def owned() -> Fleet:
    """Replica 1 is registered, and belongs to ``A1``."""
    fleet = Fleet()
    fleet.do(apply_id(), by=A1)
    fleet.do(fleet.registration(1), by=A1)
    return fleet


# --- owners (R27) --------------------------------------------------------------------------------------------------------


def test_r27_an_id_belongs_to_the_certificate_that_asked_for_it() -> None:
    """The code is on the disk and in its backups; with it alone nobody is replica 1."""
    fleet = Fleet()
    fleet.want(fleet.do(apply_id(), by=A1), IdGranted)
    assert fleet.event(OwnerBound).owner == "broker-a-1"

    stranger = refusal(fleet.do(fleet.registration(1), by=A2))

    assert stranger.code is RefusalCode.NOT_THE_OWNER
    assert "broker:broker-a-1" in stranger.reason
    assert "broker:broker-a-2" in stranger.reason
    assert code(fleet.do(apply_id(), by=A2)) is RefusalCode.NOT_THE_OWNER
    assert code(fleet.do(fleet.registration(1))) is RefusalCode.NOT_THE_OWNER, "nobody has proven nothing"
    fleet.want(fleet.do(fleet.registration(1), by=A1), Registered)
    view = view_of(fleet.state, SET_A)
    assert view is not None
    assert [member.owner for member in view.members] == ["broker-a-1"]
    assert view.members[0].is_alive


def test_r27_an_id_from_before_it_had_an_owner_gets_one_at_the_next_session() -> None:
    """Also where the process goes on, and only opens a further session."""
    fleet = Fleet()
    fleet.grant()
    fleet.do(fleet.registration(1))
    assert fleet.replica(1).owner is None

    fleet.do(fleet.registration(1), by=A1)

    assert [type(event) for event in fleet.events] == [OwnerBound, SessionOpened]
    assert fleet.replica(1).owner == "broker-a-1"
    fleet.do(fleet.registration(1), by=A1)
    assert [type(event) for event in fleet.events] == [SessionOpened], "bound once"


def test_r27_asking_again_for_an_id_binds_it() -> None:
    fleet = Fleet()
    fleet.grant()
    fleet.want(fleet.do(apply_id(), by=A1), IdGranted)
    assert fleet.replica(1).owner == "broker-a-1"


@pytest.mark.parametrize(
    "caller", [replace(A1, proved_by=ProvedBy.TOKEN, serial="t1"), KEY, replace(ALICE, name="broker-a-1")]
)
def test_r27_another_kind_of_proof_is_not_the_owner(caller: Principal) -> None:
    """A token with the name of a broker, RocketMQ's shared key, a person of that name."""
    fleet = owned()
    fleet.do(token("t1", role=Role.BROKER, name="broker-a-1", set_key=SET_A))
    assert code(fleet.do(fleet.registration(1), by=caller)) is RefusalCode.NOT_THE_OWNER


def test_r27_a_shared_key_binds_nothing() -> None:
    """With the key replaced, each id of a RocketMQ cluster would be lost."""
    fleet = Fleet()
    fleet.do(apply_id(), by=KEY)
    fleet.do(fleet.registration(1, kind=ReplicaKind.ROCKETMQ), by=replace(KEY, name="new-key"))
    assert fleet.replica(1).owner is None


def test_r27_a_fleet_that_became_insecure_keeps_its_brokers() -> None:
    fleet = owned()
    fleet.want(fleet.do(fleet.registration(1, incarnation="i1.2"), by=ANYBODY), Registered)
    assert fleet.replica(1).owner == "broker-a-1"


def test_r27_a_broker_speaks_for_its_own_set_and_as_a_broker() -> None:
    """A disk of one set, stolen, must not elect or clean in another, nor take back tokens."""
    fleet = Fleet(key=SET_B).serving()
    other = fleet.do(fleet.registration(1), by=A1)
    assert code(other) is RefusalCode.FORBIDDEN
    assert str(SET_A) in refusal(other).reason
    assert str(SET_B) in refusal(other).reason
    orders: tuple[AnyCommand, ...] = (
        CleanReplicas(set_key=SET_A),
        revoke("b2"),
        token("t"),
        RaiseFeatureLevel(level=1),
    )
    for order in orders:
        assert code(fleet.do(order, by=A1)) is RefusalCode.FORBIDDEN, order
        assert isinstance(fleet.event(CommandRefused), CommandRefused)
    unbound = replace(A1, set_key=None)
    assert code(fleet.do(fleet.registration(1), by=unbound)) is RefusalCode.FORBIDDEN
    assert code(fleet.do(token("t"), by=replace(ALICE, role=Role.VIEWER))) is RefusalCode.FORBIDDEN


def test_r27_an_alter_in_the_name_of_another_sets_master_changes_nothing() -> None:
    fleet = Fleet(key=SET_B).serving()
    members = fleet.set.sync_state_set
    assert code(fleet.do(fleet.alter(1, 2), by=A1)) is RefusalCode.FORBIDDEN
    assert fleet.set.sync_state_set == members


def test_r27_a_strangers_repeat_of_a_registration_does_not_get_its_answer() -> None:
    """The answer is the session of a replica."""
    fleet = Fleet()
    fleet.do(apply_id(), by=A1)
    command = fleet.registration(1)
    first = fleet.do(command, request_id="once", by=A1)
    assert fleet.do(command, request_id="once", by=A1) == first
    assert code(fleet.do(command, request_id="once", by=A2)) is RefusalCode.NOT_THE_OWNER


# --- the record ----------------------------------------------------------------------------------------------------------


def test_each_event_names_its_caller_and_the_chain_covers_it() -> None:
    fleet = Fleet()
    fleet.do(revoke("b2"), by=ALICE)
    record = fleet.records[-1]
    assert record.principal == ALICE
    forged = replace(record, principal=replace(ALICE, name="mallory"))
    before = decode_state(encode_state(Fleet().state))
    assert check_transition(before, fleet.state, [record]) == ()
    assert any("R24" in text for text in check_transition(before, fleet.state, [forged]))


# --- revocations (R28) ---------------------------------------------------------------------------------------------------


def test_r28_nothing_that_a_revoked_certificate_asks_is_done() -> None:
    """Its order was under way, on another controller, when it was revoked."""
    fleet = owned()
    fleet.want(fleet.do(revoke("a1"), by=ALICE), Done)
    assert fleet.event(CertificateRevoked).serial == "a1"
    found = fleet.state.revoked["a1"]
    assert (found.revoked_by, found.reason, found.name) == ("controller:c1", "lost", "of a1")
    assert fleet.state.revocations == fleet.index

    again = refusal(fleet.do(fleet.registration(1, incarnation="i1.2"), by=A1))

    assert again.code is RefusalCode.FORBIDDEN
    assert "a1" in again.reason
    assert "revoked" in again.reason
    renewed = replace(A1, serial="a1b")
    fleet.want(fleet.do(fleet.registration(1, incarnation="i1.2"), by=renewed), Registered)


def test_r28_a_revocation_within_an_entry_counts_from_the_next_item_on() -> None:
    fleet = owned()
    asked = fleet.registration(1, incarnation="i1.2")
    replies = fleet.apply(
        [fleet.operation(revoke("a1"), principal=ALICE), fleet.operation(asked, principal=A1)]
    ).replies
    assert code(replies[1]) is RefusalCode.FORBIDDEN


def test_r28_the_same_revocation_again_changes_nothing() -> None:
    fleet = Fleet()
    fleet.do(revoke("b2"))
    known = fleet.state.revocations
    fleet.want(fleet.do(revoke("b2")), Done)
    assert fleet.events == []
    assert fleet.state.revocations == known


@pytest.mark.parametrize("serial", ["", "0a1", "A1", "a1 ", "x", "f" * 41])
def test_r28_a_serial_number_in_another_spelling_is_refused(serial: str) -> None:
    """It would be in the list, and the certificate believed."""
    assert code(Fleet().do(revoke(serial))) is RefusalCode.INVALID_ARGUMENT


def test_r28_a_full_list_forgets_what_has_long_expired_and_nothing_else() -> None:
    fleet = Fleet()
    now_ms = fleet.operation(Barrier()).stamped_at_ms
    fleet.passed_ms = 2 * EXPIRED_KEPT_MS
    fleet.do(revoke("1", expires_at_ms=now_ms))
    fleet.do(revoke("2", expires_at_ms=now_ms + 2 * EXPIRED_KEPT_MS))
    fleet.apply([fleet.operation(revoke(f"{number:x}")) for number in range(3, REVOKED_MAX + 1)])
    assert len(fleet.state.revoked) == REVOKED_MAX

    fleet.want(fleet.do(revoke("fff1")), Done)

    assert fleet.event(CertificateRevoked).forgotten == ("1",)
    assert set(fleet.state.revoked) >= {"2", "fff1"}
    full = refusal(fleet.do(revoke("fff2")))
    assert full.code is RefusalCode.INVALID_REQUEST
    assert (full.requested, full.current) == (str(REVOKED_MAX + 1), str(REVOKED_MAX))


# --- tokens --------------------------------------------------------------------------------------------------------------


def test_r28_a_token_is_its_principal_until_it_expires_or_is_revoked() -> None:
    fleet = Fleet()
    fleet.want(fleet.do(token("ci", expires_at_ms=2_000_000), by=ALICE), Done)
    event = fleet.event(TokenIssued)
    assert "ci" not in (event.digest, fleet.state.tokens["ci"].digest)
    assert event.digest == hashlib.sha256(b"ci").hexdigest()

    whose = judge_token(fleet.state, digest_of("ci"), now_ms=1_999_999, address="10.0.0.7:5")

    assert whose == Principal(
        name="deploy", role=Role.OPERATOR, proved_by=ProvedBy.TOKEN, serial="ci", address="10.0.0.7:5"
    )
    with pytest.raises(TokenRefused, match="expired"):
        judge_token(fleet.state, digest_of("ci"), now_ms=2_000_000)
    with pytest.raises(TokenRefused, match="unknown"):
        judge_token(fleet.state, "ci", now_ms=1)
    fleet.want(fleet.do(CleanReplicas(set_key=SET_A), by=whose), Refused)
    fleet.want(fleet.do(RevokeToken(token_id="ci", reason="leaked"), by=ALICE), Done)
    assert isinstance(fleet.event(TokenRevoked), TokenRevoked)
    with pytest.raises(TokenRefused, match="revoked: leaked"):
        judge_token(fleet.state, digest_of("ci"), now_ms=1)
    # What a follower passed on before it knew.
    assert code(fleet.do(CleanReplicas(set_key=SET_A), by=whose)) is RefusalCode.FORBIDDEN
    assert code(fleet.do(CleanReplicas(set_key=SET_A), by=replace(whose, serial="none"))) is RefusalCode.FORBIDDEN


def test_issuing_and_revoking_a_token_again_changes_nothing() -> None:
    fleet = Fleet()
    fleet.do(token("ci"))
    fleet.want(fleet.do(token("ci")), Done)
    assert fleet.events == []
    assert code(fleet.do(token("ci", role=Role.ADMIN))) is RefusalCode.INVALID_REQUEST
    same_digest = replace(token("other"), digest=digest_of("ci"))
    assert code(fleet.do(same_digest)) is RefusalCode.INVALID_REQUEST
    fleet.do(RevokeToken(token_id="ci"))
    fleet.want(fleet.do(RevokeToken(token_id="ci")), Done)
    assert fleet.events == []
    assert code(fleet.do(RevokeToken(token_id="none"))) is RefusalCode.UNKNOWN_TOKEN


@pytest.mark.parametrize(
    "command",
    [
        token("no spaces"),
        token(""),
        replace(token("t"), digest="00"),
        token("t", name=""),
        token("t", role=Role.BROKER),
        token("t", set_key=SET_A),
        token("t", expires_at_ms=1),
        token("t", expires_at_ms=2**60),
    ],
)
def test_a_malformed_token_is_refused(command: IssueToken) -> None:
    assert code(Fleet().do(command)) is RefusalCode.INVALID_ARGUMENT


def test_a_full_list_of_tokens_forgets_those_that_are_over() -> None:
    fleet = Fleet()
    fleet.apply([fleet.operation(token(f"t{number}")) for number in range(TOKENS_MAX)])
    assert code(fleet.do(token("more"))) is RefusalCode.INVALID_REQUEST
    fleet.do(RevokeToken(token_id="t7"))
    fleet.want(fleet.do(token("more")), Done)
    assert fleet.event(TokenIssued).forgotten == ("t7",)
    assert len(fleet.state.tokens) == TOKENS_MAX


# --- what is kept --------------------------------------------------------------------------------------------------------


def test_a_snapshot_keeps_owners_revocations_and_tokens() -> None:
    fleet = owned()
    fleet.do(revoke("b2"), by=ALICE)
    fleet.do(token("ci"), by=ALICE)
    items = list(encode_state(fleet.state))
    assert decode_state(items) == fleet.state
    with pytest.raises(ValueError, match="revoked certificates"):
        decode_state(items[:-2])


def test_the_invariants_notice_a_moved_owner_and_too_long_lists() -> None:
    fleet = owned()
    state = fleet.state
    moved = replace(fleet.replica(1), owner="broker-a-2")
    after = replace(state, sets={SET_A: replace(fleet.set, replicas=(moved,))})
    assert any("C11" in text for text in check_transition(state, after, ()))
    fleet.do(revoke("b2"))
    one = fleet.state.revoked["b2"]
    many = {f"{number:x}": replace(one, serial=f"{number:x}") for number in range(1, REVOKED_MAX + 2)}
    assert any("C11" in text for text in check_state(replace(state, revoked=many)))
    assert any("C11" in text for text in check_entry(state, replace(state, revoked={"c": one}), ()))
    fleet.do(token("ci"))
    twice = {"ci": fleet.state.tokens["ci"], "cj": replace(fleet.state.tokens["ci"], token_id="cj")}
    assert any("C11" in text for text in check_state(replace(state, tokens=twice)))


def test_an_id_that_is_cleaned_belongs_to_nobody() -> None:
    """The next broker of the set gets a fresh id, whatever its name."""
    fleet = owned()
    fleet.do(CleanReplicas(set_key=SET_A, broker_ids=(BrokerId(1),), is_unclean=True), by=ALICE)
    fleet.want(fleet.do(apply_id("code-9"), by=A2), IdGranted)
    assert fleet.replica(2).owner == "broker-a-2"

"""The SyncStateSet on the master: every loss of the model checker that lives here, and Kafka's caught-up rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import AlterVerdict
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.sync_state import (
    ConfirmMoved,
    MastershipEnded,
    MemberInSync,
    ProposeAlter,
    ReignStart,
    SyncOutput,
    SyncState,
)
from tests.support.set_views import shown, shown_member

A, B, C = 1, 2, 3
FLEET = FleetIncarnation("fleet-1")
CATCH_UP_MS, SURVIVORS_MS, RETRY_MS = 3000, 500, 200
TIMING = replace(
    PRESETS[Preset.FAST],
    catch_up_timeout_ms=CATCH_UP_MS,
    survivors_wait_ms=SURVIVORS_MS,
    session_rpc_timeout_ms=RETRY_MS,
    stall_ms=1000,
)


class Master:
    """A SyncState with short words for its inputs; members' incarnations are ``inc-<id>``."""

    def __init__(self, members: tuple[int, ...], *, end: int = 0, min_in_sync: int = 1, flush: str = "async") -> None:
        self.now_ms = 0
        self.generation = 0
        self.links: dict[int, int] = {}
        reign = ReignStart(
            broker_id=BrokerId(A),
            incarnation=Incarnation("inc-1"),
            fleet_incarnation=FLEET,
            master_epoch=MasterEpoch(5),
            start_offset=LogOffset(end),
            confirm_offset=LogOffset(0),
            sync_state_set=tuple(map(BrokerId, members)),
            sync_state_set_epoch=SyncStateSetEpoch(10),
            min_in_sync=min_in_sync,
            flush=FlushMode(flush),
            timing=TIMING,
        )
        self.state = SyncState(reign, log_end=LogOffset(end), now_ms=0)

    @property
    def confirm(self) -> int:
        return self.state.confirm_offset

    def write(self, end: int) -> list[SyncOutput]:
        return self.state.log_extended(LogOffset(end))

    def link(self, member: int, *, learner: bool = False, incarnation: str = "") -> None:
        self.generation += 1
        self.links[member] = self.generation
        name = Incarnation(incarnation or f"inc-{member}")
        assert self.state.link_opened(BrokerId(member), name, self.generation, is_learner=learner) == []

    def unlink(self, member: int) -> None:
        self.state.link_closed(BrokerId(member), self.links[member], self.now_ms)

    def ack(self, member: int, offset: int, **changes: object) -> list[SyncOutput]:
        fields: dict[str, object] = {
            "broker_id": member,
            "incarnation": f"inc-{member}",
            "master_epoch": 5,
            "link_generation": self.links.get(member, 0),
            "offset": offset,
            "is_promise_durable": True,
        } | changes
        return self.state.ack(MemberAck(**fields), self.now_ms)  # type: ignore[arg-type]

    def verdict(
        self, seq: int, *, accepted: bool, members: tuple[int, ...], version: int, epoch: int = 5
    ) -> list[SyncOutput]:
        return self.state.verdict(self.decided(seq, members, version, epoch, accepted=accepted), self.now_ms)

    def overtaken(self, seq: int, *, members: tuple[int, ...], version: int, epoch: int = 5) -> list[SyncOutput]:
        return self.state.overtaken(self.decided(seq, members, version, epoch, accepted=True), self.now_ms)

    @staticmethod
    def decided(seq: int, members: tuple[int, ...], version: int, epoch: int, *, accepted: bool) -> AlterVerdict:
        return AlterVerdict(
            master_epoch=MasterEpoch(epoch),
            seq=seq,
            is_accepted=accepted,
            refusal=None if accepted else RefusalCode.FENCED_SYNC_STATE_SET_EPOCH,
            sync_state_set=tuple(map(BrokerId, members)),
            sync_state_set_epoch=SyncStateSetEpoch(version),
        )

    def hear(
        self,
        members: tuple[int, ...],
        version: int,
        *,
        epoch: int = 5,
        master: int = A,
        inc: str = "inc-1",
        fleet: FleetIncarnation = FLEET,
        stopping: tuple[int, ...] = (),
    ) -> list[SyncOutput]:
        view = shown(
            fleet_incarnation=fleet,
            master_epoch=MasterEpoch(epoch),
            master=BrokerId(master),
            master_incarnation=Incarnation(inc),
            sync_state_set=tuple(map(BrokerId, members)),
            sync_state_set_epoch=SyncStateSetEpoch(version),
            members=tuple(shown_member(one, is_stopping=True) for one in stopping),
        )
        return self.state.authoritative_state(view, self.now_ms)

    def wait(self, duration_ms: int, step_ms: int = 100) -> list[SyncOutput]:
        outputs: list[SyncOutput] = []
        for _ in range(duration_ms // step_ms):
            self.now_ms += step_ms
            outputs += self.state.tick(self.now_ms)
        return outputs


def proposals(outputs: list[SyncOutput]) -> list[ProposeAlter]:
    return [output for output in outputs if isinstance(output, ProposeAlter)]


def joined(members: tuple[int, ...] = (A, B), **options: object) -> Master:
    """A master whose members all acked offset 0."""
    master = Master(members, **options)  # type: ignore[arg-type]
    for member in members[1:]:
        master.link(member)
        master.ack(member, master.state.reign.start_offset)
    return master


# --- R1, R2: outcomes ------------------------------------------------------------------------------------------------


def test_r1_a_retry_repeats_the_same_content_although_more_happened() -> None:
    """{A,B} commits as seq 1; a retry as {A,C} would drop B from the required set."""
    master = Master((A,))
    master.link(B)
    first = proposals(master.ack(B, 0))
    master.link(C)
    master.write(10)
    assert proposals(master.ack(C, 10)) == []
    again = proposals(master.wait(RETRY_MS * 3))
    assert again
    assert set(map(repr, again)) == {repr(first[0])}
    assert first[0].seq == 1
    assert first[0].new_set == (A, B)
    assert first[0].joining == ((B, "inc-2"),)


def test_r2_a_timeout_does_not_drop_the_proposal() -> None:
    """The alter commits later and B is elected: nothing may be released without B meanwhile."""
    master = Master((A,))
    master.link(B)
    assert proposals(master.ack(B, 0))
    master.write(100)
    master.wait(60_000)
    assert master.confirm == 0
    assert master.state.required_set == (A, B)


def test_r2_the_answer_of_another_seq_or_epoch_ends_nothing() -> None:
    master = Master((A,))
    master.link(B)
    master.ack(B, 0)
    master.write(100)
    assert master.verdict(2, accepted=False, members=(A,), version=10) == []
    assert master.verdict(1, accepted=False, members=(A,), version=10, epoch=4) == []
    assert (master.state.required_set, master.confirm) == ((A, B), 0)


def test_r2_a_refusal_because_of_the_epoch_ends_the_mastership_not_the_union() -> None:
    """{A} proposes {A,B}; it commits, the answer is lost, B is elected: A must not ack v1 alone."""
    master = Master((A,))
    master.link(B)
    master.ack(B, 0)
    assert master.state.mastership_refused("masterEpoch 5 is stale, current is 6") == [
        MastershipEnded(reason="masterEpoch 5 is stale, current is 6")
    ]
    assert master.write(100) == []
    assert master.state.required_set == (A, B)
    assert master.confirm == 0
    assert not master.state.may_release
    assert master.hear((A,), 99) == master.wait(10_000) == []


def test_r2_a_stored_refusal_of_the_own_seq_ends_the_union() -> None:
    """W8: a proposal that was refused must not require a member for ever."""
    master = Master((A,))
    master.link(B)
    master.ack(B, 0)
    master.write(100)
    assert master.verdict(1, accepted=False, members=(A,), version=10) == [ConfirmMoved(offset=LogOffset(100))]
    assert master.state.required_set == (A,)


def test_r1_a_forged_seq_does_not_stop_the_alters_of_a_reign() -> None:
    """{A} proposes {A,B} as 1; a stranger's 900 was decided in A's name: 1 was refused and repeated, for ever."""
    master = joined((A,))
    master.link(B)
    assert [alter.seq for alter in proposals(master.ack(B, 0))] == [1]

    master.overtaken(900, members=(A,), version=10)

    assert master.state.required_set == (A,), "1 can never be applied any more"
    again = proposals([*master.wait(RETRY_MS), *master.ack(B, 0)])
    assert [(alter.seq, alter.new_set) for alter in again] == [(901, (A, B))]


def test_r1_an_alter_that_was_applied_before_it_was_overtaken_is_adopted() -> None:
    """{A,B} commits as 1, its answer is lost, and 2 is forged: A must not forget B, which can be elected."""
    master = joined((A,))
    master.link(B)
    master.ack(B, 0)

    master.overtaken(2, members=(A, B), version=11)

    assert master.state.local_set == (A, B)
    assert [output for output in master.write(100) if isinstance(output, ConfirmMoved)] == []


def test_r1_a_verdict_on_a_lower_seq_or_of_another_epoch_overtakes_nothing() -> None:
    master = joined((A,))
    master.link(B)
    master.ack(B, 0)
    master.verdict(1, accepted=False, members=(A,), version=10)
    assert [alter.seq for alter in proposals(master.wait(RETRY_MS))] == [2]

    assert master.overtaken(1, members=(A,), version=10) == []
    assert master.overtaken(900, members=(A,), version=10, epoch=4) == []

    assert master.state.required_set == (A, B)


def test_r2_a_state_of_another_epoch_is_not_adopted() -> None:
    """A, still in 1, adopts {A} of epoch 3 and acks v1; B, in 2, cuts it."""
    master = joined()
    master.write(100)
    assert master.hear((A,), 99, epoch=7) == [MastershipEnded(reason="masterEpoch is 7 now, this reign is 5")]
    assert master.state.local_set == (A, B)
    assert master.confirm == 0


def test_r2_a_state_of_this_epoch_for_another_incarnation_ends_the_mastership() -> None:
    master = joined()
    assert isinstance(master.hear((A,), 11, inc="other")[0], MastershipEnded)
    assert master.state.local_set == (A, B)


def test_r2_an_older_or_equal_state_changes_nothing_and_a_newer_one_is_adopted() -> None:
    """S06; also W7: what was proposed on the older state can no longer commit."""
    master = joined()
    master.write(100)
    assert master.hear((A,), 10) == master.hear((A,), 9, epoch=4) == []
    assert master.state.local_set == (A, B)
    assert ConfirmMoved(offset=LogOffset(100)) in master.hear((A,), 11)
    assert master.state._local_epoch == 11


def test_r2_removing_needs_the_union_too() -> None:
    """{A,B} proposes {A}; B is elected first: nothing is released without B before the verdict."""
    master = joined()
    master.write(100)
    master.unlink(B)
    (alter,) = proposals(master.wait(SURVIVORS_MS))
    assert (alter.new_set, alter.joining, alter.sync_state_set_epoch) == ((A,), (), 10)
    assert master.write(200) == []
    assert master.state.required_set == (A, B)
    assert ConfirmMoved(offset=LogOffset(200)) in master.verdict(1, accepted=True, members=(A,), version=11)


# --- R2: which acks count --------------------------------------------------------------------------------------------


def test_r2_joining_and_being_required_are_one_step() -> None:
    """W6b: B passes at 0, A acks v1, then proposes {A,B}."""
    master = Master((A,))
    master.link(B)
    outputs = master.ack(B, 0)
    assert proposals(outputs)
    assert master.write(50) == []
    assert master.state.required_set == (A, B)


def test_r2_nobody_joins_below_the_start_of_the_epoch() -> None:
    """B admits C below its own start: C lacks bytes of the past that others released."""
    master = Master((A,), end=1000)
    master.link(C)
    assert proposals(master.ack(C, 999)) == []
    assert proposals(master.ack(C, 1000))


def test_r2_nobody_joins_below_confirm() -> None:
    """A acks v1, admits B at 0."""
    master = Master((A,))
    master.write(100)
    assert master.confirm == 100
    master.link(B)
    assert proposals(master.ack(B, 99)) == []
    assert proposals(master.ack(B, 100))


def test_r12_acks_of_another_epoch_link_or_incarnation_do_not_count() -> None:
    """A late ack of epoch 1 releases v2; a late ack passes the join test."""
    master = joined()
    master.write(100)
    old = master.links[B]
    master.link(B)
    for wrong in (
        {"master_epoch": 4},
        {"master_epoch": 6},
        {"link_generation": old},
        {"incarnation": "inc-before"},
        {"is_promise_durable": False},
    ):
        assert master.ack(B, 100, **wrong) == []
        assert master.state.acked(BrokerId(B)) is None
    assert ConfirmMoved(offset=LogOffset(100)) in master.ack(B, 100)


def test_r2_a_promotion_and_a_handshake_make_members_unknown() -> None:
    """W9, S10: a member that reconnected counts as unknown, not as absent and not by its last ack."""
    master = Master((A, B))
    master.write(100)
    assert master.confirm == 0
    master.link(B)
    master.ack(B, 100)
    assert master.confirm == 100
    master.link(B)
    master.write(200)
    assert master.confirm == 100
    master.ack(B, 150)
    assert master.confirm == 150


def test_r9_an_ack_without_a_durable_promise_does_not_count() -> None:
    """C acked in 3 without a byte, restarts, follows the stale master of 2, is cut."""
    master = Master((A, B))
    master.link(B)
    master.write(10)
    assert master.ack(B, 10, is_promise_durable=False) == []
    assert master.confirm == 0


def test_s15_confirm_freezes_while_a_required_member_is_not_connected() -> None:
    """S15: what its side replicates meanwhile is acknowledged to nobody."""
    master = joined((A, B, C))
    master.write(100)
    master.ack(B, 100)
    master.unlink(C)
    master.ack(B, 100)
    assert master.confirm == 0


def test_d6_confirm_never_falls() -> None:
    """A newcomer is asked for everything that is confirmed; a lower ack of a known one is no news."""
    master = joined()
    master.write(100)
    master.ack(B, 80)
    assert master.confirm == 80
    assert master.ack(B, 20) == []
    assert master.confirm == 80


def test_w10_a_late_close_of_an_older_link_means_nothing() -> None:
    master = joined()
    old = master.links[B]
    master.link(B)
    master.ack(B, 0)
    master.state.link_closed(BrokerId(B), old, master.now_ms)
    master.write(10)
    master.ack(B, 10)
    assert master.confirm == 10


def test_r23_a_learner_is_heard_and_never_joins() -> None:
    master = Master((A,))
    master.link(B, learner=True)
    assert master.ack(B, 0) == []
    assert master.state.acked(BrokerId(B)) == 0


def test_r3_in_a_synced_set_the_master_s_own_ack_is_what_it_synced() -> None:
    master = Master((A,), flush="sync")
    assert master.write(100) == []
    assert master.state.log_synced(LogOffset(60)) == [ConfirmMoved(offset=LogOffset(60))]
    assert Master((A,), end=500, flush="sync").write(600) == [], "the log that it entered with may not be synced either"


# --- R22, R6, W13: counting, leaving ---------------------------------------------------------------------------------


def test_r22_min_in_sync_counts_members_of_both_sets() -> None:
    """S09: a joiner does not count before the verdict, and confirm does not move below the minimum."""
    master = Master((A,), min_in_sync=2)
    assert not master.state.may_release
    master.link(B)
    master.ack(B, 0)
    master.write(10)
    assert (master.state.in_sync_count, master.state.may_release) == (1, False)
    assert master.ack(B, 10) == []
    assert master.confirm == 0
    outputs = master.verdict(1, accepted=True, members=(A, B), version=11)
    assert outputs == [MemberInSync(broker_id=BrokerId(B)), ConfirmMoved(offset=LogOffset(10))]
    assert master.state.may_release


def test_r22_a_member_about_to_leave_counts_no_more() -> None:
    master = joined((A, B, C), min_in_sync=2)
    assert master.state.may_release
    master.unlink(B)
    (alter,) = proposals(master.wait(SURVIVORS_MS))
    assert (alter.new_set, master.state.counted, master.state.may_release) == ((A, C), (A, C), True)
    master.unlink(C)
    master.wait(SURVIVORS_MS)
    assert (master.state.in_sync_count, master.state.may_release) == (1, False)


def test_r22_a_master_that_loses_its_slaves_keeps_them_in_its_set() -> None:
    """Alone in its set it could not acknowledge either; and when it died, nobody could be elected."""
    master = joined((A, B, C), min_in_sync=2)
    master.write(100)
    master.unlink(B)
    master.unlink(C)
    assert proposals(master.wait(10 * CATCH_UP_MS)) == []
    assert (master.state.local_set, master.state.required_set) == ((A, B, C), (A, B, C))
    assert (master.state.counted, master.state.may_release) == ((A,), False)
    # B is back: not by its link, but by an ack of all that there is. C is removed as soon as it can be spared.
    master.link(B)
    master.ack(B, 40)
    assert not master.state.may_release
    master.ack(B, 100)
    assert (master.state.counted, master.state.may_release) == ((A, B), True)
    assert master.confirm == 0, "C is required until the verdict"
    (alter,) = proposals(master.wait(100))
    assert (alter.new_set, alter.reason) == ((A, B), "[3] not caught up or not connected")
    outputs = master.verdict(alter.seq, accepted=True, members=(A, B), version=11)
    assert ConfirmMoved(offset=LogOffset(100)) in outputs


def test_r22_slaves_that_a_master_lost_one_after_the_other_left_it_with_one_heir() -> None:
    """Cut off from both: B was heard 300 ms before C, and removed 300 ms before C was found lost, too."""
    master = joined((A, B, C), min_in_sync=2)
    master.wait(300)
    master.ack(C, 0)
    assert proposals(master.wait(CATCH_UP_MS - 300)) == []
    master.unlink(B)
    assert proposals(master.wait(300)) == []
    master.unlink(C)
    assert proposals(master.wait(10 * CATCH_UP_MS)) == []
    assert master.state.local_set == (A, B, C)
    # C is heard again: now B can be spared.
    master.link(C)
    (alter,) = proposals(master.ack(C, 0) + master.wait(100))
    assert alter.new_set == (A, C)


def test_r22_a_slave_that_hangs_and_cannot_be_spared_closes_the_gate_until_it_has_caught_up() -> None:
    master = joined(min_in_sync=2)
    master.write(100)
    assert proposals(master.wait(CATCH_UP_MS)) == []
    assert not master.state.may_release
    assert master.ack(B, 100) == [ConfirmMoved(offset=LogOffset(100))]
    assert master.state.may_release


def test_r22_a_replica_that_was_no_member_takes_the_place_of_one_that_is_gone() -> None:
    """{A,B} of three, B dies for good, C comes back: the set would else never acknowledge again."""
    master = joined(min_in_sync=2)
    master.write(100)
    master.unlink(B)
    assert proposals(master.wait(CATCH_UP_MS)) == []
    master.link(C)
    (join,) = proposals(master.ack(C, 100))
    assert join.new_set == (A, B, C)
    (removal,) = proposals(
        master.verdict(join.seq, accepted=True, members=(A, B, C), version=11) + master.wait(RETRY_MS)
    )
    assert removal.new_set == (A, C)
    outputs = master.verdict(removal.seq, accepted=True, members=(A, C), version=12)
    assert ConfirmMoved(offset=LogOffset(100)) in outputs
    assert master.state.may_release


def test_r22_a_member_about_to_stop_that_cannot_be_spared_stays_and_counts_while_it_acks() -> None:
    """It holds every byte: removed, it could not be elected when it is back and the master dies."""
    master = joined((A, B, C), min_in_sync=2)
    master.hear((A, B, C), 10, stopping=(B,))
    master.unlink(C)
    alters = proposals(master.wait(SURVIVORS_MS + 100))
    assert [one.new_set for one in alters] == [(A, B)], "C has no link: B cannot be spared for it"
    master.verdict(alters[0].seq, accepted=True, members=(A, B), version=11)

    pair = joined(min_in_sync=2)
    pair.hear((A, B), 10, stopping=(B,))
    pair.write(100)
    assert proposals(pair.wait(SURVIVORS_MS)) == []
    assert pair.ack(B, 100) == [ConfirmMoved(offset=LogOffset(100))]
    assert pair.state.may_release
    pair.unlink(B)
    assert proposals(pair.wait(CATCH_UP_MS)) == []
    assert not pair.state.may_release


def test_r22_with_one_about_to_stop_and_one_gone_the_one_that_is_gone_is_removed() -> None:
    master = joined((A, B, C), min_in_sync=2)
    master.unlink(C)
    master.wait(SURVIVORS_MS - 100)
    master.hear((A, B, C), 10, stopping=(B,))
    (alter,) = proposals(master.wait(100))
    assert (alter.new_set, alter.reason) == ((A, B), "[3] not caught up or not connected")


def test_r6_survivors_that_do_not_shake_hands_are_proposed_for_removal_together() -> None:
    """S03, S05: after the wait, in one alter."""
    master = Master((A, B, C))
    assert master.wait(SURVIVORS_MS - 100) == []
    (alter,) = proposals(master.wait(100))
    assert alter.new_set == (A,)


def test_a_member_that_hangs_leaves_after_the_catch_up_time() -> None:
    """W13: its link is open and its log does not follow."""
    master = joined()
    master.write(100)
    assert proposals(master.wait(CATCH_UP_MS - 100)) == []
    (alter,) = proposals(master.wait(100))
    assert alter.new_set == (A,)


def test_w13_a_member_one_ack_behind_under_load_stays() -> None:
    """The reference samples one slot and drops healthy slaves; Kafka's rule looks at the end of the ack before."""
    master = joined()
    end = 0
    for _ in range(100):
        behind = end
        end += 1000
        master.write(end)
        master.now_ms += 100
        master.ack(B, behind)
        assert master.state.tick(master.now_ms) == []


def test_a_member_that_acks_but_falls_behind_more_and_more_leaves() -> None:
    master = joined()
    seen: list[SyncOutput] = []
    for step in range(1, 60):
        master.write(step * 1000)
        master.now_ms += 100
        master.ack(B, step * 10)
        seen += master.state.tick(master.now_ms)
    assert proposals(seen)[0].new_set == (A,)


def test_after_a_stall_of_its_own_process_a_master_removes_nobody() -> None:
    master = joined()
    master.wait(500)
    master.now_ms += 20_000
    assert master.state.tick(master.now_ms) == []
    assert proposals(master.wait(CATCH_UP_MS - 100)) == []


def test_a_refused_join_is_tried_again_with_a_new_seq_after_a_pause() -> None:
    """S07, L5: the refusal neither blocks writes nor is it final."""
    master = Master((A,))
    master.link(B)
    master.ack(B, 0)
    assert master.verdict(1, accepted=False, members=(A,), version=10) == []
    assert proposals(master.wait(RETRY_MS - 100)) == []
    (alter,) = proposals(master.wait(100))
    assert (alter.seq, alter.new_set) == (2, (A, B))


def test_a_late_answer_after_the_state_was_adopted_changes_nothing() -> None:
    """S01, S02: the answer is lost, the state is pushed, then the answer comes after all."""
    master = Master((A,))
    master.link(B)
    master.ack(B, 0)
    assert MemberInSync(broker_id=BrokerId(B)) in master.hear((A, B), 11)
    assert master.verdict(1, accepted=True, members=(A, B), version=11) == []
    assert (master.state.required_set, master.state._local_epoch) == ((A, B), 11)


def test_l3_a_healthy_replica_joins_a_lonely_master_under_constant_load() -> None:
    """W13: alone, confirm is always the end, and an ack is always one batch behind it."""
    master = Master((A,))
    master.link(B)
    end, alters = 0, []
    for _ in range(10):
        behind, end = end, end + 1000
        master.write(end)
        master.now_ms += 10
        alters += proposals(master.ack(B, max(behind, 1)))
    assert [alter.new_set for alter in alters] == [(A, B)]


def test_confirm_waits_for_a_replica_about_to_join_for_a_moment_only() -> None:
    """Who stops acking before it joined holds nobody up."""
    master = Master((A,))
    master.link(B)
    master.write(1000)
    master.ack(B, 1)
    master.write(2000)
    master.ack(B, 1000)
    master.write(3000)
    assert master.confirm == 2000
    assert ConfirmMoved(offset=LogOffset(3000)) in master.wait(SURVIVORS_MS)


def test_a_member_that_left_because_it_hung_does_not_join_again_where_it_froze_confirm() -> None:
    """Its last ack equals confirm, which it held there itself."""
    master = joined()
    master.write(100)
    master.ack(B, 80)
    (alter,) = proposals(master.wait(CATCH_UP_MS + 100))
    outputs = master.verdict(alter.seq, accepted=True, members=(A,), version=11)
    assert outputs == [ConfirmMoved(offset=LogOffset(100))]
    assert master.wait(CATCH_UP_MS) == []


def test_a_master_outside_its_own_set_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not in its SyncStateSet"):
        Master((B, C))


def test_r2_a_view_of_the_same_version_ends_no_union() -> None:
    """
    {A,B}; {A,B,C} is proposed and unanswered; C's link breaks, and a heartbeat brings {A,B} of the same version.

    The alter may have committed behind that view: were C dropped, A and B would release what C, electable, lacks.
    """
    master = joined()
    master.link(C)
    master.write(100)
    master.ack(B, 100)
    master.ack(C, 100)
    assert master.state.outstanding is not None
    assert master.state.required_set == (A, B, C)
    master.unlink(C)

    outputs = [*master.hear((A, B), 10), *master.write(100), *master.ack(B, 200)]

    assert master.state.required_set == (A, B, C)
    assert not [output for output in outputs if isinstance(output, ConfirmMoved)]


def test_r7_a_view_of_restored_controllers_is_no_knowledge_of_an_alter_of_the_old_ones() -> None:
    """{A,B} proposes {A,B,C}; a backup is restored, whose {A,B} has got a higher SyncStateSetEpoch by a registration."""
    master = joined()
    master.link(C)
    master.write(100)
    master.ack(B, 100)
    master.ack(C, 100)
    assert master.state.required_set == (A, B, C)
    master.unlink(C)

    outputs = [*master.hear((A, B), 90, fleet=FleetIncarnation("restored")), *master.write(200), *master.ack(B, 200)]

    assert master.state.required_set == (A, B, C)
    assert not [output for output in outputs if isinstance(output, ConfirmMoved)]
    assert master.state.ended is None
    assert master.hear((A, B), 1, epoch=6, fleet=FleetIncarnation("restored")), (
        "a new epoch ends the reign all the same"
    )
    assert master.state.ended is not None


def test_a_member_that_is_about_to_stop_is_removed_while_it_still_acks_and_does_not_join_again() -> None:
    """Removed half a second after its link has gone, it would hold up every send of that time."""
    master = joined()
    master.hear((A, B), 10, stopping=(B,))
    (proposal,) = proposals(master.wait(100))
    assert (proposal.new_set, proposal.reason) == ((A,), "[2] about to stop")

    master.write(100)
    assert [type(output) for output in master.ack(B, 100)] == [ConfirmMoved], "until the verdict it is required"
    master.verdict(proposal.seq, accepted=True, members=(A,), version=11)
    master.write(200)
    assert proposals(master.ack(B, 200) + master.wait(1_000)) == []

    master.hear((A,), 11)
    assert [one.new_set for one in proposals(master.ack(B, 200) + master.wait(100))] == [(A, B)], "its process is new"

"""What may be committed, what an answer means, which queues come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.client.progress import (
    ATTEMPTS_MAX,
    QUEUE_MESSAGES_MAX,
    QueueProgress,
    Step,
    changes,
    members_of,
    step_of,
)
from rollcall_ha.broker.protocol.consumers import MessageQueue

QUEUE = MessageQueue("b", 0, "T")


def message(offset: int) -> Message:
    return Message(
        topic="T",
        queue=QUEUE,
        queue_offset=offset,
        body=b"",
        properties={},
        born_at_ms=0,
        stored_at_ms=0,
        message_id="",
        log_offset=0,
        reconsume_times=0,
        size_bytes=10,
    )


def messages(*offsets: int) -> list[Message]:
    return [message(offset) for offset in offsets]


@given(
    st.lists(st.integers(1, 6), max_size=30).map(lambda steps: [sum(steps[: at + 1]) for at in range(len(steps))]),
    st.randoms(use_true_random=False),
)
def test_what_is_committed_is_never_above_an_unfinished_message_and_never_goes_back(
    offsets: list[int], random: object
) -> None:
    progress = QueueProgress(0)
    progress.take(messages(*offsets), (offsets or [0])[-1] + 1)
    given_out = progress.give(len(offsets))
    random.shuffle(given_out)  # type: ignore[attr-defined]
    open_ = set(offsets)
    last = -1
    for each in given_out:
        due = progress.due
        assert due == min(open_)
        assert due >= last
        last = due
        progress.finish([each])
        open_.discard(each.queue_offset)
    assert progress.due == progress.next_offset
    assert progress.open_bytes == 0


def test_the_first_offset_of_a_new_group_is_due_before_any_message() -> None:
    """Else a group that began at the end, and died before its first message, would begin at a later end."""
    assert QueueProgress(100).due == 100
    assert QueueProgress(100, 100).due is None


def test_a_queue_that_passed_messages_by_is_committed_behind_them() -> None:
    progress = QueueProgress(5, 5)
    progress.take((), 900)
    assert progress.due == 900


def test_a_queue_that_is_taken_back_forgets_what_it_has_and_reads_it_again() -> None:
    progress = QueueProgress(0)
    progress.take(messages(0, 1, 2), 3)
    old = progress.give(2)
    progress.move(1)
    assert (progress.due, progress.open_bytes, list(progress.ready)) == (1, 0, [])
    progress.finish(old)
    assert progress.due == 1
    progress.take(messages(1, 2), 3)
    assert [each.queue_offset for each in progress.give(9)] == [1, 2]


def test_a_queue_that_is_moved_forward_finishes_what_it_has_first() -> None:
    """Thrown away, a message that retention has removed meanwhile would never have been handled."""
    progress = QueueProgress(0)
    progress.take(messages(0, 1), 2)
    progress.move(50)
    assert progress.due == 0
    progress.finish(progress.give(2))
    assert progress.due == 50


def test_an_answer_that_came_twice_gives_nothing_twice() -> None:
    progress = QueueProgress(0)
    progress.take(messages(0, 1), 2)
    progress.take(messages(0, 1), 2)
    assert len(progress.give(9)) == 2


def test_what_failed_is_in_front_again_and_has_a_limit() -> None:
    progress = QueueProgress(0)
    progress.take(messages(0, 1, 2), 3)
    for number in range(ATTEMPTS_MAX):
        batch = progress.give(2)
        assert [each.queue_offset for each in batch] == [0, 1]
        progress.note_failed(batch)
        worst = progress.back(batch)
        assert (worst is None) == (number + 1 < ATTEMPTS_MAX)
    assert progress.due == 0


def test_a_queue_is_full_by_what_is_not_finished() -> None:
    progress = QueueProgress(0)
    progress.take(messages(*range(QUEUE_MESSAGES_MAX)), QUEUE_MESSAGES_MAX)
    batch = progress.give(10)
    assert progress.is_full
    progress.finish(batch)
    assert not progress.is_full


def test_every_code_of_an_answer_has_its_step() -> None:
    assert step_of(0, was_held=False) == (Step.TAKE, 0)
    assert step_of(20, was_held=False) == (Step.GO_ON, 0)
    assert step_of(19, was_held=True) == (Step.GO_ON, 0)
    assert step_of(21, was_held=False) == (Step.MOVE, 0)
    assert step_of(23, was_held=False)[0] is Step.END
    for code in range(1, 300):
        step, pause_ms = step_of(code, was_held=False)
        # A refusal that is asked again at once would be asked a thousand times a second.
        assert pause_ms > 0 or step in (Step.MOVE, Step.END) or code == 20


def test_a_list_of_members_that_cannot_be_right_changes_nothing() -> None:
    assert members_of(0, ["b", "a", "b"], "a") == ["a", "b"]
    assert members_of(0, ["b"], "a") is None
    assert members_of(0, [], "a") is None
    assert members_of(1, ["a"], "a") is None


def test_queues_to_stop_and_to_begin_with() -> None:
    one, two, three = (MessageQueue("b", number, "T") for number in range(3))
    assert changes({one, two}, [two, three]) == ({one}, {three})
